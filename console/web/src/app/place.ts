const meta = (name: string) => document.querySelector<HTMLMetaElement>(`meta[name="${name}"]`);

/** The path of the console without a slash at its end. */
export const basePath = (meta("perdure-base")?.content ?? "").replace(/\/$/, "");

/** The path below which the API is, with a slash at its end. */
export const apiPath = (() => {
  const said = meta("perdure-api")?.content ?? "";
  return said.startsWith("/") ? said : "/";
})();

/** The nonce with which styles may be added to the page. */
export const nonce = meta("csp-nonce")?.nonce ?? "";

/** A word of a shell's command line. */
export function quoted(word: string): string {
  return /^[A-Za-z0-9_./:=@%+,-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;
}

/** A request as a curl command. The token is taken from the environment. */
export function curlOf(method: string, path: string, body?: unknown, origin = location.origin): string {
  const parts = ["curl", "-H", '"Authorization: Bearer $PERDURE_TOKEN"'];
  if (body !== undefined) parts.push("--json", quoted(JSON.stringify(body)));
  else if (method !== "GET") parts.push("-X", method);
  parts.push(quoted(origin + path));
  return parts.join(" ");
}

/** A command of perdure on the server that serves this page. What it is about comes last, so that no id is taken for a flag. */
export function cliOf(command: string[], about: string | string[], origin = location.origin): string {
  const ids = [about].flat();
  return ["perdure", ...command.map(quoted), "--server", quoted(origin), ...(ids.some((id) => id.startsWith("-")) ? ["--"] : []), ...ids.map(quoted)].join(" ");
}

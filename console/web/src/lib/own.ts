/**
 * What an object has under a name that comes from elsewhere. Names such as constructor and
 * __proto__ are names like any other, and not what every object of the language has.
 */
export const own = <T>(of: Readonly<Record<string, T>> | null | undefined, name: string | undefined): T | undefined =>
  of && name !== undefined && Object.hasOwn(of, name) ? of[name] : undefined;

/** Where the server is: at the root of this origin, or behind a prefix where another page has us as a part of it. */
let prefix = "";

export const serveFrom = (place: string): void => {
  prefix = place.replace(/\/+$/, "");
};

/** Return the address of something on the server. */
export const at = (path: string): string => prefix + path;

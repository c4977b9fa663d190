/** Where the server is: at the root of this origin, or behind a prefix where another dashboard embeds the page. */
let prefix = "";

export const setServerPrefix = (path: string): void => {
  prefix = path.replace(/\/+$/, "");
};

/** Return the address of a path on the server. */
export const serverUrl = (path: string): string => prefix + path;

/** Whether the page is a part of another: masthead and navigation are the host's then. */
import { createContext, useContext } from "react";

const EmbeddedContext = createContext(false);
export const EmbeddedProvider = EmbeddedContext.Provider;
export const useIsEmbedded = (): boolean => useContext(EmbeddedContext);

import { federation } from "@module-federation/vite";
import react from "@vitejs/plugin-react";
import { defineConfig } from "vite";

const one = { singleton: true } as const;

// The page as a remote of module federation: React, the router and PatternFly are the host's where it has them.
export default defineConfig({
  base: "./",
  plugins: [
    react(),
    federation({
      name: "mpijob",
      filename: "remoteEntry.js",
      exposes: { "./MPIJobs": "./src/remote.tsx", "./mount": "./src/mount.tsx" },
      shared: { react: one, "react-dom": one, "react-router-dom": one, "@patternfly/react-core": one },
      dts: false,
    }),
  ],
  build: {
    target: "es2022",
    outDir: "../src/mpijob/api/page/remote",
    emptyOutDir: true,
    assetsInlineLimit: 0,
    modulePreload: false,
    chunkSizeWarningLimit: 2000,
    rollupOptions: { input: "src/mount.tsx" },
  },
});

// Preloaded into generators of clients: they import `typescript` for its API in JavaScript, which TypeScript 7 has not.
// Effects: changes the module `typescript` in this process.

import { plugin } from 'bun'

plugin({
  name: 'typescript-api',
  setup: build => {
    build.module('typescript', async () => ({
      exports: { ...(await import('@typescript/typescript6')) },
      loader: 'object',
    }))
  },
})

// The package's entry for Bun and Node.

export { attestedFetch } from './node-attested-fetch.ts'
export * from './public.ts'

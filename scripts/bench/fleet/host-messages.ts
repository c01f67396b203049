// Messages between the benchmark of a fleet and its hosts. Pure.

/** Asks when this name has an address. */
export type ToHost = { readonly hostname: string }

export type FromHost =
  | { readonly kind: 'started'; readonly url: string; readonly hostId: string }
  | { readonly kind: 'named'; readonly hostname: string; readonly atMs: number }

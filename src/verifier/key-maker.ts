// Reads the maker of an API key from a gateway's response to GET /v1/usage. Pure.

/** Returns the maker; null if the body does not name it, as in earlier releases of gateways. */
export function keyMakerIn(body: unknown): 'client' | 'host' | null {
  const maker = typeof body === 'object' && body !== null && 'key_made_by' in body ? body.key_made_by : null
  return maker === 'client' || maker === 'host' ? maker : null
}

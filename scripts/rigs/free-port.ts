// A port that is free now. Effects: a listener on loopback, for a moment.

export async function freePort(): Promise<number> {
  const server = Bun.serve({ hostname: '127.0.0.1', port: 0, fetch: () => new Response() })
  const port = server.port ?? 0
  await server.stop(true)
  return port
}

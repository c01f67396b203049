// An HTTPS server of a test that answers with the fields it got: `bun echo-world.ts ADDRESS PORT DIRECTORY`, which has
// leaf.pem and leaf.key. Prints a line when it serves. GET /seen lists the Authorization fields that arrived.

const [hostname = '', port = '', directory = ''] = process.argv.slice(2)
const seen: (string | null)[] = []
Bun.serve({
  hostname,
  port: Number(port),
  tls: { cert: Bun.file(`${directory}/leaf.pem`), key: Bun.file(`${directory}/leaf.key`) },
  fetch: request => {
    if (new URL(request.url).pathname === '/seen') return Response.json(seen)
    seen.push(request.headers.get('authorization'))
    return Response.json(Object.fromEntries(request.headers))
  },
})
process.stdout.write('world\n')

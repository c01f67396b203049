// Asks the daemon for one change after the other until its input ends: `load-program.ts SOCKET PREFIX PAUSE_MS`. Prints
// a line for each answer. Effects: requests over the socket.

const [socket = '', prefix = '', pauseMs = '0'] = process.argv.slice(2)
const timeoutMs = 10_000
let isOver = false
void (async () => {
  for await (const _ of process.stdin) {
    // Only its end counts.
  }
  isOver = true
})()

for (let count = 0; !isOver; count += 1) {
  const slug = `${prefix}-${count}`
  process.stdout.write(`${JSON.stringify({ slug, ...(await ask(slug)) })}\n`)
  await Bun.sleep(Number(pauseMs))
}

async function ask(slug: string): Promise<object> {
  try {
    const response = await fetch('http://strongroom/organizations', {
      unix: socket,
      method: 'POST',
      // A daemon that hangs takes connections and answers none.
      signal: AbortSignal.timeout(timeoutMs),
      headers: { 'content-type': 'application/json', connection: 'close' },
      body: JSON.stringify({ slug }),
    })
    const { error } = (await response.json()) as { error?: { code: string } }
    return { status: response.status, code: error?.code ?? null, retryAfter: response.headers.get('retry-after') }
  } catch {
    return { status: null }
  }
}

export {}

// The agent channel of a guest as a UNIX socket: the host's requests come in as lines of JSON, and the test's responses
// go back. Effects: one socket.

/** `null`: the guest says nothing. */
type Answer<Request> = (request: Request) => Promise<object | null>

export function listenAsGuest<Request extends { readonly id: string }>(
  path: string,
  answer: Answer<Request>,
): Disposable {
  let rest = ''
  const listener = Bun.listen({
    unix: path,
    socket: {
      data: (socket, bytes) => {
        const lines = (rest + bytes.toString()).split('\n')
        rest = lines.pop() ?? ''
        for (const line of lines.filter(Boolean)) {
          const request: Request = JSON.parse(line)
          void answer(request).then(said => said !== null && socket.write(`${JSON.stringify(said)}\n`))
        }
      },
    },
  })
  return { [Symbol.dispose]: () => listener.stop(true) }
}

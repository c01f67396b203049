// Reads server-sent events from a response, for requests with headers, which EventSource cannot send. Pure. WHATWG HTML
// 9.2.6.

const eventCharsMax = 1_048_576

/** Yields the `data` of each event. Throws for an event of more than a mebichar. */
export async function* eventsIn(body: AsyncIterable<Uint8Array<ArrayBuffer>>): AsyncGenerator<string> {
  const decoder = new TextDecoder()
  let rest = ''
  let data: string[] = []
  for await (const part of body) {
    const lines = (rest + decoder.decode(part, { stream: true })).split(/\r\n|\n|\r(?!$)/)
    rest = lines.pop() ?? ''
    if (rest.length > eventCharsMax) throw new Error(`an event has more than ${eventCharsMax} characters`)
    for (const line of lines) {
      if (line === '') {
        if (data.length > 0) yield data.join('\n')
        data = []
      } else if (line.startsWith('data:')) data.push(line.slice(line.startsWith('data: ') ? 6 : 5))
    }
  }
}

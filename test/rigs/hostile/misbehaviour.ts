// Ways in which an upstream misbehaves within an answer, by name, and what of it no client may see.

import {
  type Behaviour,
  chunk,
  delta,
  openSse,
  sendJson,
  sse,
  USAGE,
} from '../../../scripts/rigs/gateway/upstream-server.ts'

export const SECRETS = ['upstream-key-canary', 'engine-', 'engine_', '127.0.0.1', 'leaky']
const HELLO = sse(delta({ role: 'assistant', content: 'Hi' }))
/** Chunks of one form, by which the last ones are found; misbehaviour begins where the next could come. */
export const FORMED = [' a', ' b', ' c', ' "d"\n'].map(content => sse(delta({ content })))
const html: Behaviour = response => {
  response.writeHead(200, { 'content-type': 'text/html' }).end('<html>leaky engine at 127.0.0.1</html>')
}
export const quoting: Behaviour = (response, seen) =>
  sendJson(response, 401, { error: { message: `leaky: bad key ${seen.headers.get('authorization')}`, code: 401 } })
export const raw =
  (text: string | Uint8Array): Behaviour =>
  response => {
    openSse(response)
    response.end(text)
  }
export const begun =
  (then: Behaviour, more: readonly string[] = []): Behaviour =>
  async (response, seen, gone) => {
    openSse(response)
    for (const event of [HELLO, ...more]) {
      response.write(event)
      // A piece of its own on the wire, so that the answer has begun. Several short sleeps: the gateway in this process
      // has its turn in each, even if the process stood still meanwhile.
      for (let turn = 0; turn < (event === HELLO ? 10 : 1); turn += 1) await Bun.sleep(event === HELLO ? 10 : 5)
    }
    await then(response, seen, gone)
  }
export const hang: Behaviour = () => {}
const cut: Behaviour = response => {
  response.destroy()
}
const drip: Behaviour = async (response, _seen, gone) => {
  let isGone = false
  void gone.then(() => {
    isGone = true
  })
  while (!isGone) {
    response.write('d')
    await Bun.sleep(20)
  }
}

/** Whether only the gateway's patience ends it. */
export const isSilent = (name: string): boolean => /hang|slow drip|comments only/.test(name)

/** Before the first event, while there is still a status. */
export const BEFORE: Record<string, Behaviour> = {
  'a cut connection': cut,
  'a cut after the head': response => {
    openSse(response)
    response.flushHeaders()
    setTimeout(() => response.destroy(), 20)
  },
  'a hang before the head': hang,
  'a hang after the head': response => {
    openSse(response)
    response.flushHeaders()
  },
  'comments only': async (response, _seen, gone) => {
    openSse(response)
    const timer = setInterval(() => response.write(': leaky\n\n'), 20)
    await gone
    clearInterval(timer)
  },
  'a slow drip': async (response, seen, gone) => {
    openSse(response)
    await drip(response, seen, gone)
  },
  garbage: raw('data: leaky {]\n\n'),
  'garbage that is no event stream': raw(new Uint8Array([0xff, 0xfe, 0x0a, 0x0a])),
  HTML: html,
  'an error event': raw('data: {"error":{"message":"leaky","code":500}}\n\n'),
  'nothing at all': raw(''),
  'only [DONE]': raw('data: [DONE]\n\n'),
  'a giant event': raw(`data: ${'x'.repeat(300_000)}\n\n`),
  'a wrong content type': response => sendJson(response, 200, { leaky: true }),
  'a 401 that quotes its key': quoting,
  'a 500': response => sendJson(response, 500, { error: { message: 'leaky', code: 500 } }),
  'a redirect': response => {
    response.writeHead(302, { location: '/v1/elsewhere' }).end()
  },
  'compressed bytes': response => {
    response.writeHead(200, { 'content-type': 'text/event-stream', 'content-encoding': 'gzip' }).end('leaky')
  },
  'a choice that nobody asked for': raw(sse(chunk([{ index: 7, delta: { content: 'x' }, finish_reason: null }]))),
  'a negative count of tokens': raw(sse({ ...delta({ content: 'x' }), usage: { ...USAGE, prompt_tokens: -5 } })),
}

/** After the first event. */
export const WITHIN: Record<string, Behaviour> = {
  'a cut': cut,
  'a hang': hang,
  'a slow drip': drip,
  'an end without [DONE]': response => {
    response.end(sse(delta({}, 'stop')))
  },
  'a [DONE] without finish_reason': response => {
    response.end('data: [DONE]\n\n')
  },
  'an unknown finish_reason': response => {
    response.end(`${sse(delta({}, 'leaky'))}data: [DONE]\n\n`)
  },
  'text after its end': response => {
    response.end(`${sse(delta({}, 'stop'))}${sse(delta({ content: 'leaky' }))}data: [DONE]\n\n`)
  },
  garbage: response => {
    response.end('data: leaky {]\n\n')
  },
  'an error event': response => {
    response.end('data: {"error":{"message":"leaky","code":500}}\n\ndata: [DONE]\n\n')
  },
  'half an event': response => {
    response.end('data: {"leaky":')
  },
  'half a character': response => {
    response.end(Buffer.concat([Buffer.from('data: "'), Buffer.from([0xf0, 0x9f]), Buffer.from('"\n\n')]))
  },
  'a giant event': response => {
    response.end(`data: ${'x'.repeat(300_000)}\n\n`)
  },
  'a giant event that does not end': async (response, _seen, gone) => {
    let isGone = false
    void gone.then(() => {
      isGone = true
    })
    while (!isGone) {
      response.write('x'.repeat(65_536))
      await Bun.sleep(5)
    }
  },
  'half a chunk of the same form': response => {
    response.end(sse(delta({ content: 'leaky' })).slice(0, -9))
  },
  'a chunk of the same form with bytes that are no text': response => {
    response.end(Buffer.from(sse(delta({ content: 'leaky \u00ff' })), 'latin1'))
  },
  'a giant chunk of the same form': response => {
    response.end(sse(delta({ content: 'x'.repeat(300_000) })))
  },
  'a tool that nobody offered': response => {
    response.end(sse(delta({ tool_calls: [{ index: 0, id: 'c', function: { name: 'leaky', arguments: '' } }] })))
  },
}

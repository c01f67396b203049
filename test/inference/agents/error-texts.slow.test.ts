// A person reads an agent's error text: each agent of the command line, unchanged out of the registry, prints the
// gateway's sentence with the remedy, or words of its own that say as much. By default each text has one agent that
// prints it, and each agent's own words are looked for; scripts/test --all has each text from each agent.

import { afterAll, beforeAll, describe, expect, test } from 'bun:test'
import { installAgent } from '../../../scripts/rigs/agents/cli.ts'
import { type Day, startDay } from '../../../scripts/rigs/agents/day.ts'
import { PROGRAMS } from '../../../scripts/rigs/agents/programs.ts'
import { decidingModel } from '../../../scripts/rigs/agents/script.ts'
import { runsAll } from '../../../scripts/rigs/all.ts'
import { CALLER, startHostGateway, target } from '../../../scripts/rigs/gateway/server.ts'
import { sendJson } from '../../../scripts/rigs/gateway/upstream-server.ts'
import { skipUnless } from '../../../scripts/rigs/skip.ts'
import { createLogger } from '../../../src/base/log.ts'
import { createSender } from '../../../src/guest/gateway/sender.ts'
import { instanceAdvice } from '../../../src/guest/gateway/serve.ts'
import { Endpoint, type Sender } from '../../../src/verifier/fetch/endpoint/endpoint.ts'
import { listenOnLoopback } from '../../../src/verifier/fetch/endpoint/listen.ts'
import { VerificationError } from '../../../src/verifier/fetch/errors.ts'

type Served = AsyncDisposable & { readonly url: string }

/** The endpoint of an instance. */
function serveEndpoint(baseUrl: URL, sender: Sender): Served {
  const log = createLogger({ level: 'error', sink: () => {}, nowMs: Date.now, name: 'gateway' })
  const endpoint = new Endpoint({ access: () => ({ baseUrl, sender }), advice: instanceAdvice, log })
  const server = listenOnLoopback(endpoint, { hostname: '127.0.0.1', port: 0 })
  return { url: `http://127.0.0.1:${server.port}`, [Symbol.asyncDispose]: () => server[Symbol.asyncDispose]() }
}

/** The gateway of an instance does not prove what the claim wants. */
function unverified(): Served {
  const failed = { name: 'measurement', outcome: 'fail', required: true, reason: 'no expected measurement' } as const
  const refuse = () => Promise.reject(new VerificationError('gateway.example', [failed]))
  return serveEndpoint(new URL('https://gateway.example/v1'), { send: refuse, close: () => {} })
}

/** Nothing listens where the gateway of an instance is. */
function down(): Served {
  const gateway = { kind: 'unattested', why: 'host', ca: null } as const
  const baseUrl = new URL('http://127.0.0.1:9/v1')
  return serveEndpoint(baseUrl, createSender({ by: 'claim', baseUrl, gateway }))
}

type Case = {
  readonly name: string
  /** Takes the agent's requests instead of the gateway; null if `arrange` is enough. */
  readonly front: (() => Served) | null
  /** Returns changes of the agent's environment. */
  readonly arrange?: (day: Day) => Readonly<Record<string, string>>
  /** Texts that the agent prints; for each agent that has words of its own, those. */
  readonly prints: readonly string[]
  readonly own?: Partial<Record<keyof typeof PROGRAMS, readonly string[]>>
  /** Agents that run it by default. None: retries take an agent minutes. */
  readonly by: readonly (keyof typeof PROGRAMS)[]
}

const answers = decidingModel(() => ({ say: 'hello' }))

const CASES: readonly Case[] = [
  {
    name: 'the gateway does not prove itself to the instance',
    front: unverified,
    prints: [
      'Your prompt was not sent: the gateway at gateway.example did not prove what it has to: measurement: no expected measurement.',
      'What to do: run strongroom-verify, which shows the result of every check',
    ],
    by: ['codex'],
  },
  {
    name: 'the budget is spent',
    front: () => {
      const caller = { budgets: { ...CALLER.budgets, key: { nanoUsd: null, tokens: 1 } } }
      return startHostGateway([target('http://127.0.0.1:9/v1')], { caller, limits: { bodyBytesMax: 33_554_432 } })
    },
    prints: [
      'The token budget of this key for ',
      'Lower max_tokens, or ask the operator to raise the budget. It resets at ',
    ],
    by: ['opencode'],
  },
  {
    name: 'the model is missing',
    front: null,
    arrange: ({ program, home, recorder }) => program.configure(home, recorder.url, { model: 'absent' }),
    prints: ['This key cannot use a model with that name. GET /v1/models lists the models it can use.'],
    own: {
      'claude-code': ["There's an issue with the selected model (absent)", 'Run --model to pick a different model'],
    },
    by: ['claude-code', 'opencode'],
  },
  {
    name: 'the context is too long',
    front: null,
    arrange: ({ upstream }) => {
      const message = "This model's maximum context length is 9 tokens."
      upstream.behave = response => sendJson(response, 400, { error: { message, code: 'context_length_exceeded' } })
      return {}
    },
    prints: ["The prompt plus max_tokens exceeds the model's context. Shorten the prompt or lower max_tokens."],
    own: {
      codex: ["Codex ran out of room in the model's context window.", 'Start a new thread or clear earlier history'],
    },
    by: ['claude-code', 'codex'],
  },
  {
    name: 'the gateway of the instance is down',
    front: down,
    prints: ['The gateway at 127.0.0.1:9 did not answer in full', 'What to do: try again'],
    by: [],
  },
]

/** Agents retry by themselves, and the machine may be busy. */
const caseMs = 720_000

describe.each(Object.values(PROGRAMS))('$name', program => {
  const undo = new AsyncDisposableStack()
  let day: Day
  let problem: string | null = null

  beforeAll(async () => {
    const installed = await installAgent(program.name)
    if ('problem' in installed) {
      problem = installed.problem
      return
    }
    day = undo.use(await startDay({ name: program.name, ...installed }, { behave: answers }))
  }, 300_000)

  afterAll(() => undo.disposeAsync())

  const chosen = CASES.filter(({ by }) => runsAll || by.some(name => name === program.name))

  test.each(chosen)(
    `goal: the person reads what to do when $name (${chosen.length} of ${CASES.length} cases)`,
    async ({ front, arrange, prints, own = {} }) => {
      if (skipUnless(problem === null, `${program.name}: ${problem}`)) return
      await using served = front === null ? null : front()
      const direct = day.recorder.target
      if (served !== null) day.recorder.target = served.url
      const env = arrange?.(day) ?? {}
      try {
        const turn = await day.run(program.argv('Say hi', 'first'), env)
        // Codex writes its errors to standard error, the others to standard output.
        const text = turn.out + turn.err
        for (const sentence of own[program.name] ?? prints) expect(text).toContain(sentence)
        expect(turn.exit).not.toBe(0)
      } finally {
        day.recorder.target = direct
        day.upstream.behave = answers
        program.configure(day.home, day.recorder.url)
      }
    },
    caseMs,
  )
})

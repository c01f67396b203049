// Libraries that agents are made of, with their default settings, against the gateway with a scripted model: a first
// answer, a tool loop of five steps, a stream, a second turn, and an abort.

import { afterEach, beforeEach, describe, expect, test } from 'bun:test'
import { createAnthropic } from '@ai-sdk/anthropic'
import { createOpenAI } from '@ai-sdk/openai'
import { ChatAnthropic } from '@langchain/anthropic'
import { type BaseMessageLike, HumanMessage, ToolMessage } from '@langchain/core/messages'
import { tool as langchainTool } from '@langchain/core/tools'
import { ChatOpenAI } from '@langchain/openai'
import { Agent, tool as agentTool, MemorySession, OpenAIProvider, Runner, setTracingDisabled } from '@openai/agents'
import { generateText, jsonSchema, type LanguageModel, type ModelMessage, stepCountIs, streamText, tool } from 'ai'
import { agentModel, PROMPTS } from '../../../scripts/rigs/agents/script.ts'
import { KEY, MODEL, startGateway, type TestGateway, target } from '../../../scripts/rigs/gateway/server.ts'
import { startUpstream, type TestUpstream } from '../../../scripts/rigs/gateway/upstream-server.ts'
import { until } from '../../../scripts/rigs/until.ts'

/** On a busy machine, too. */
const patient = { bodyTimeoutMs: 60_000, idleTimeoutMs: 60_000, firstByteTimeoutMs: 60_000 }
const hookMs = 60_000

let upstream: TestUpstream
let gateway: TestGateway

beforeEach(async () => {
  upstream = await startUpstream(
    agentModel((names, step) => (names.includes('step') ? { name: 'step', args: { step } } : null)),
  )
  gateway = await startGateway([target(upstream.url)], { limits: patient })
}, hookMs)

afterEach(async () => {
  await gateway[Symbol.asyncDispose]()
  await upstream.stop()
}, hookMs)

const parameters = {
  type: 'object' as const,
  properties: { step: { type: 'number' as const } },
  required: ['step'],
  additionalProperties: false as const,
}

/** One library, and how it takes its turns. */
type Kit = {
  readonly name: string
  /** Answers of a first turn and of a second one, with the steps that the tool has seen. */
  readonly turns: (url: string, onStep: (step: number) => void) => Promise<readonly string[]>
  readonly streamed: (url: string) => Promise<string>
  /** Rejects, or ends, when the signal aborts. */
  readonly waits: (url: string, signal: AbortSignal) => Promise<unknown>
}

function aiKit(name: string, modelAt: (url: string) => LanguageModel): Kit {
  return {
    name,
    turns: async (url, onStep) => {
      const step = tool({
        description: 'takes a step',
        inputSchema: jsonSchema<{ step: number }>(parameters),
        execute: async ({ step }) => {
          onStep(step)
          return `took ${step}`
        },
      })
      const asked = { model: modelAt(url), tools: { step }, stopWhen: stepCountIs(10), maxRetries: 0 }
      const history: ModelMessage[] = [{ role: 'user', content: PROMPTS.steps }]
      const first = await generateText({ ...asked, messages: history })
      history.push(...first.responseMessages, { role: 'user', content: PROMPTS.again })
      const second = await generateText({ ...asked, messages: history })
      return [first.text, second.text]
    },
    streamed: async url => await streamText({ model: modelAt(url), prompt: 'Hello', maxRetries: 0 }).text,
    waits: async (url, signal) => {
      const stream = streamText({ model: modelAt(url), prompt: PROMPTS.wait, abortSignal: signal, maxRetries: 0 })
      for await (const _piece of stream.textStream);
    },
  }
}

const agentsKit: Kit = {
  name: '@openai/agents',
  turns: async (url, onStep) => {
    const step = agentTool({
      name: 'step',
      description: 'takes a step',
      parameters: { ...parameters, required: [...parameters.required] },
      strict: true,
      execute: async input => {
        const { step } = input as { step: number }
        onStep(step)
        return `took ${step}`
      },
    })
    const agent = new Agent({ name: 'tester', model: MODEL, tools: [step] })
    const session = new MemorySession()
    const runner = runnerAt(url)
    const first = await runner.run(agent, PROMPTS.steps, { session })
    const second = await runner.run(agent, PROMPTS.again, { session })
    const third = await runner.run(agent, PROMPTS.again, { previousResponseId: second.lastResponseId ?? '' })
    expect(third.finalOutput).toBe('after 5 steps')
    return [first.finalOutput ?? '', second.finalOutput ?? '']
  },
  streamed: async url => {
    const stream = await runnerAt(url).run(new Agent({ name: 'tester', model: MODEL }), 'Hello', { stream: true })
    await stream.completed
    return stream.finalOutput ?? ''
  },
  waits: async (url, signal) => {
    const agent = new Agent({ name: 'tester', model: MODEL })
    const stream = await runnerAt(url).run(agent, PROMPTS.wait, { stream: true, signal })
    await stream.completed
  },
}

function runnerAt(url: string): Runner {
  setTracingDisabled(true)
  return new Runner({ modelProvider: new OpenAIProvider({ apiKey: KEY, baseURL: `${url}/v1` }), tracingDisabled: true })
}

function langchainKit(name: string, modelAt: (url: string) => ChatOpenAI | ChatAnthropic): Kit {
  return {
    name,
    turns: async (url, onStep) => {
      const step = langchainTool(
        async input => {
          const { step } = input as { step: number }
          onStep(step)
          return `took ${step}`
        },
        { name: 'step', description: 'takes a step', schema: parameters },
      )
      const model = modelAt(url).bindTools([step])
      const history: BaseMessageLike[] = []
      const answers: string[] = []
      for (const prompt of [PROMPTS.steps, PROMPTS.again]) {
        history.push(new HumanMessage(prompt))
        for (;;) {
          const answer = await model.invoke(history)
          history.push(answer)
          const calls = answer.tool_calls ?? []
          if (calls.length === 0) {
            answers.push(answer.text)
            break
          }
          for (const { id = '', args } of calls) {
            const content = String(await step.invoke(args as { step: number }))
            history.push(new ToolMessage({ tool_call_id: id, content }))
          }
        }
      }
      return answers
    },
    streamed: async url => {
      let text = ''
      for await (const piece of await modelAt(url).stream('Hello')) text += piece.text
      return text
    },
    waits: async (url, signal) => {
      for await (const _piece of await modelAt(url).stream(PROMPTS.wait, { signal }));
    },
  }
}

const KITS: readonly Kit[] = [
  aiKit('@ai-sdk/openai', url => createOpenAI({ apiKey: KEY, baseURL: `${url}/v1` })(MODEL)),
  aiKit('@ai-sdk/anthropic', url => createAnthropic({ apiKey: KEY, baseURL: `${url}/v1` })(MODEL)),
  agentsKit,
  langchainKit(
    '@langchain/openai',
    url => new ChatOpenAI({ apiKey: KEY, model: MODEL, maxRetries: 0, configuration: { baseURL: `${url}/v1` } }),
  ),
  langchainKit(
    '@langchain/anthropic',
    url => new ChatAnthropic({ apiKey: KEY, model: MODEL, maxRetries: 0, anthropicApiUrl: url }),
  ),
]

describe.each(KITS)('$name', kit => {
  // Goal: the loop ends with the answer, and the next turn knows all that was called before.
  test('five steps, and a second turn', async () => {
    const steps: number[] = []
    expect(await kit.turns(gateway.url, step => void steps.push(step))).toEqual(['after 5 steps', 'after 5 steps'])
    expect(steps).toEqual([1, 2, 3, 4, 5])
    expect(new Set((await gateway.records()).map(({ outcome }) => outcome))).toEqual(new Set(['completed']))
  }, 60_000)

  // Goal: a stream is the same text.
  test('a stream', async () => {
    expect(await kit.streamed(gateway.url)).toBe('after 0 steps')
  }, 60_000)

  // Goal: leaving frees the upstream, and the request is accounted.
  test('an abort', async () => {
    const leave = new AbortController()
    const waiting = kit.waits(gateway.url, leave.signal).catch(() => {})
    await until('the upstream is asked', 60_000, () => upstream.active() === 1)
    leave.abort()
    await until('the upstream is free', 60_000, () => upstream.active() === 0)
    await waiting
    await until('the request is accounted', 60_000, async () => (await gateway.records())[0]?.outcome === 'aborted')
  }, 60_000)
})

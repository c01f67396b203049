// Converts the events of a streamed completion one by one into OpenAI's chunks. Pure; holds one stream's state.

import { present } from '../../base/assert.ts'
import { UpstreamFault } from '../failure.ts'
import { isObject, type JsonObject } from '../json-text.ts'
import { reportedFault } from '../refusal.ts'
import { type ChunkTemplate, templateOf } from './chunk-template.ts'
import { type CompletionPlan, checkFormat, checkToolChoice, publicFinishReason } from './completion-plan.ts'
import { ChoiceCalls } from './engines/calls.ts'
import { callsOf, contentOf, isErrorDocument, isWithoutContent, parseFinishReason } from './engines/deviations.ts'
import { chatLogprobs, textLogprobs } from './logprobs.ts'
import { isNone, malformed, parseUpstreamJson, reasoningOf, stringOrNull } from './upstream-json.ts'
import { parseUsage, type Usage } from './usage.ts'

type ChoiceState = {
  isStarted: boolean
  isFinished: boolean
  /** The reason as sent to the client; null while the choice continues. */
  finishReason: string | null
  isRefused: boolean
  /** Kept only if response_format makes a requirement on it. */
  content: string
  readonly calls: ChoiceCalls
}

type ChunkHead = { readonly id: string; readonly object: string; readonly created: number; readonly model: string }

/** A template and the number of events that matched it. */
type Form = {
  readonly template: ChunkTemplate
  /** Number of events that matched it. */
  uses: number
}

const NONE: readonly string[] = []
/** Data that is longer than this is not [DONE] with white space around it. */
const doneCharsMax = 16
/** Maximum number of chunks converted in full between two templates, if templates turn out to be useless. */
const templateGapMax = 64

export class ChunkConverter {
  readonly #plan: CompletionPlan
  readonly #contentCharsMax: number
  readonly #head: ChunkHead
  /** Every chunk consists of this, its choices and the tail; only the choices are serialized each time. */
  readonly #leadingText: string
  readonly #trailingText: string
  /** Bytes of every chunk's constant part. */
  readonly #headBytes: number
  readonly #choices = new Map<number, ChoiceState>()
  #usage: Usage | null = null
  #deliveredCount = 0
  #contentChars = 0
  #contents: readonly string[] = NONE
  #form: Form | null = null
  /** Number of chunks to convert in full before the next template is made, and that number last time. */
  #templateGap = { left: 0, length: 0 }

  /** `contentCharsMax`: how much content is kept for a check of response_format. */
  constructor(plan: CompletionPlan, contentCharsMax: number) {
    const { request } = plan
    this.#plan = plan
    this.#contentCharsMax = contentCharsMax
    this.#head = {
      id: plan.id,
      object: request.operation === 'chat' ? 'chat.completion.chunk' : 'text_completion',
      created: plan.createdS,
      model: request.model,
    }
    this.#leadingText = `${JSON.stringify(this.#head).slice(0, -1)},"choices":`
    this.#trailingText = request.includeUsage ? ',"usage":null}' : '}'
    this.#headBytes = Buffer.byteLength(this.#leadingText + this.#trailingText)
  }

  /** Usage that the upstream has reported so far. */
  get usage(): Usage | null {
    return this.#usage
  }

  /** Number of converted choices with content, refusal or calls: an estimate of the tokens. */
  get deliveredCount(): number {
    return this.#deliveredCount
  }

  /** Returns the finish reasons of the choices that have ended, in order. */
  finishReasons(): string[] {
    const ended = [...this.#choices].filter(([, choice]) => choice.isFinished).toSorted(([a], [b]) => a - b)
    return ended.map(([, { finishReason }]) => finishReason ?? '')
  }

  /** Template of the last chunk; null if it has no reusable form, and once the choice has ended. */
  get template(): ChunkTemplate | null {
    return this.#form?.template ?? null
  }

  /** Like `convert`, for the data that this text in the template represents. */
  convertTemplated(text: string): string {
    const form = present(this.#form, 'a text has a template')
    form.uses += 1
    this.#deliveredCount += 1
    return this.#padded(`${form.template.chunkBefore}${text}${form.template.chunkAfter}`)
  }

  /**
   * Returns the chunk's JSON for the client, `end` for the upstream's [DONE], or null if there is nothing to send.
   * Throws UpstreamFault, and Faults of `reportedFault`.
   */
  convert(data: string): string | 'end' | null {
    const only = data.length > doneCharsMax ? data : data.trim()
    if (only === '[DONE]') {
      this.#checkFinished()
      return 'end'
    }
    if (only === '') return null
    const value = parseUpstreamJson(data)
    if (!isObject(value)) throw malformed()
    if (isErrorDocument(value)) throw reportedFault(value)
    this.#usage = parseUsage(value.usage) ?? this.#usage
    if (isWithoutContent(value)) return null
    if (!Array.isArray(value.choices)) throw malformed()
    if (value.choices.length === 0) return null
    const isChat = this.#plan.request.operation === 'chat'
    const wasStarted = this.#isStarted()
    const choices = value.choices.map(choice => {
      if (!isObject(choice)) throw malformed()
      const index = choice.index ?? 0
      const state = this.#stateOf(index)
      return isChat ? this.#chatChoice(choice, Number(index), state) : this.#textChoice(choice, Number(index), state)
    })
    if (wasStarted && isNone(value.usage)) this.#noteForm(data, choices)
    return this.#padded(this.#leadingText + JSON.stringify(choices) + this.#trailingText)
  }

  /** Returns the contents of the choices that ended since the last call, to check against a strict response_format. */
  takeContents(): readonly string[] {
    const taken = this.#contents
    this.#contents = NONE
    return taken
  }

  /** Returns the last chunk with the usage, for clients that requested it. */
  usageChunk(usage: Usage): string {
    return this.#padded(JSON.stringify({ ...this.#head, choices: [], usage }))
  }

  /** Reports whether the only choice has begun; its first chunk differs from all others. */
  #isStarted(): boolean {
    return this.#plan.request.choiceCount === 1 && this.#choices.get(0)?.isStarted === true
  }

  /** Makes a template of a converted chunk if it has one text and nothing that the following chunks lack. */
  #noteForm(data: string, choices: readonly JsonObject[]): void {
    const [choice] = choices
    // Content that is checked at the end must be kept as it arrives.
    if (choice === undefined || choices.length > 1 || this.#plan.request.format.kind !== 'text') return
    const gap = this.#templateGap
    if (gap.left > 0) {
      gap.left -= 1
      return
    }
    gap.length = this.#form?.uses === 0 ? Math.min(templateGapMax, gap.length * 2 + 1) : 0
    gap.left = gap.length
    const template = templateOf(data, choice, { lead: this.#leadingText, trail: this.#trailingText })
    this.#form = template === null ? null : { template, uses: 0 }
  }

  #padded(chunk: string): string {
    return this.#plan.obfuscate?.(chunk, this.#headBytes) ?? chunk
  }

  #checkFinished(): void {
    const finished = this.#choices.values().filter(choice => choice.isFinished)
    if ([...finished].length !== this.#plan.request.choiceCount) throw new UpstreamFault('unfinished')
  }

  #stateOf(index: unknown): ChoiceState {
    if (!isIndex(index, this.#plan.request.choiceCount)) throw malformed()
    const known = this.#choices.get(index)
    if (known !== undefined) return known
    const fresh = {
      isStarted: false,
      isFinished: false,
      isRefused: false,
      content: '',
      calls: new ChoiceCalls(this.#plan, chars => this.#noteKept(chars)),
      finishReason: null,
    }
    this.#choices.set(index, fresh)
    return fresh
  }

  #chatChoice(choice: JsonObject, index: number, state: ChoiceState): JsonObject {
    const delta = choice.delta ?? choice.message ?? {}
    if (!isObject(delta)) throw malformed()
    const { content, reasoning: thoughts } = contentOf(delta.content)
    const refusal = stringOrNull(delta.refusal)
    const calls = state.calls.take(callsOf(delta))
    const reasoning = { ...(thoughts === '' ? {} : { reasoning_content: thoughts }), ...reasoningOf(delta) }
    const isReasoning = Boolean(reasoning.reasoning_content || reasoning.reasoning)
    if (content || refusal || isReasoning || calls.length > 0) this.#noteDelivered(state)
    if (refusal) state.isRefused = true
    if (content) this.#keepContent(content, state)
    const converted: Record<string, unknown> = {}
    if (!state.isStarted) {
      converted.role = 'assistant'
      converted.content = calls.length > 0 ? null : ''
    }
    state.isStarted = true
    if (content !== null) converted.content = content
    if (refusal !== null) converted.refusal = refusal
    Object.assign(converted, reasoning)
    const finishReason = this.#finish(choice.finish_reason, state)
    const inputs = finishReason === null ? [] : state.calls.customInputs(finishReason === 'length')
    if (calls.length + inputs.length > 0) converted.tool_calls = [...calls, ...inputs]
    return { index, delta: converted, logprobs: chatLogprobs(choice.logprobs), finish_reason: finishReason }
  }

  #textChoice(choice: JsonObject, index: number, state: ChoiceState): JsonObject {
    state.isStarted = true
    const text = stringOrNull(choice.text) ?? ''
    if (text !== '') this.#noteDelivered(state)
    return {
      index,
      text,
      logprobs: textLogprobs(choice.logprobs),
      finish_reason: this.#finish(choice.finish_reason, state),
    }
  }

  #noteDelivered(state: ChoiceState): void {
    if (state.isFinished) throw malformed()
    this.#deliveredCount += 1
  }

  #keepContent(content: string, state: ChoiceState): void {
    if (this.#plan.request.format.kind === 'text') return
    this.#noteKept(content.length)
    state.content += content
  }

  #noteKept(chars: number): void {
    this.#contentChars += chars
    if (this.#contentChars > this.#contentCharsMax) throw new UpstreamFault('too_large')
  }

  /** Returns the finish reason for the client; null while the choice continues. */
  #finish(reason: unknown, state: ChoiceState): string | null {
    if (isNone(reason) || reason === '') return null
    const callCount = state.calls.count
    const finishReason = parseFinishReason(reason, this.#plan.request.operation, callCount)
    const ending = { callCount, finishReason, content: state.content, isRefused: state.isRefused }
    if (state.isFinished) {
      // Some engines repeat the reason; a different one would give the choice two ends.
      if (publicFinishReason(ending) === state.finishReason) return null
      throw malformed()
    }
    checkToolChoice(this.#plan, ending)
    if (finishReason !== 'length') state.calls.checkStrict()
    const content = checkFormat(this.#plan, ending)
    if (content !== null) this.#contents = [...this.#contents, content]
    state.isFinished = true
    state.content = ''
    // The choice has no more text.
    this.#form = null
    state.finishReason = publicFinishReason(ending)
    return state.finishReason
  }
}

function isIndex(value: unknown, count: number): value is number {
  return typeof value === 'number' && Number.isInteger(value) && value >= 0 && value < count
}

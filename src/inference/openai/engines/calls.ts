// The calls of tools in one streamed choice, whose pieces an engine may send in any order. Pure; holds the state of one
// choice.

import { isObject, type JsonObject } from '../../json-text.ts'
import { type CompletionPlan, toolCallId } from '../completion-plan.ts'
import { isNone, malformed, stringOrNull } from '../upstream-json.ts'
import { calledInput, customCall, customPiece } from './custom-tools.ts'
import { argumentsOf, calledTool, checkStrictArguments } from './deviations.ts'

type BegunCall = {
  /** Index for the client, which counts calls from 0 in the order in which they begin. */
  readonly index: number
  /** The engine's id; null if the engine sent none. */
  readonly engineId: string | null
  readonly isStrict: boolean
  /** Whether the client gets the whole text at the end. The pieces before it are empty. */
  readonly isCustom: boolean
  /** Arguments so far; for a tool that is neither strict nor custom, only whether there are any. */
  args: string
  /** Whether the arguments arrived as an object, so that no more may follow. */
  isWhole: boolean
}

type Piece = {
  readonly index: unknown
  readonly engineId: string | null
  readonly name: string | null
  readonly args: string
  readonly isWhole: boolean
}

const callsMax = 128

export class ChoiceCalls {
  readonly #plan: CompletionPlan
  readonly #noteKept: (chars: number) => void
  readonly #begun: BegunCall[] = []
  readonly #byIndex = new Map<unknown, BegunCall>()

  /** `noteKept` is called before arguments are kept; it throws if they are too long. */
  constructor(plan: CompletionPlan, noteKept: (chars: number) => void) {
    this.#plan = plan
    this.#noteKept = noteKept
  }

  get count(): number {
    return this.#begun.length
  }

  /** Returns the pieces for the client. Throws UpstreamFault malformed or wrong_tool. */
  take(calls: readonly JsonObject[]): JsonObject[] {
    return calls.flatMap(call => this.#take(pieceOf(call)))
  }

  /** Throws UpstreamFault bad_arguments if a strict tool is called with anything but a JSON object. */
  checkStrict(): void {
    for (const { isStrict, args } of this.#begun) if (isStrict) checkStrictArguments(args)
  }

  /** Returns the pieces with the texts of custom tools, once the choice has ended. */
  customInputs(isCut: boolean): JsonObject[] {
    return this.#begun.flatMap(({ index, isCustom, args }) =>
      isCustom ? [customPiece(index, calledInput(args, isCut) ?? '')] : [],
    )
  }

  #take(piece: Piece): JsonObject[] {
    const { name, args } = piece
    const known = this.#continuedBy(piece)
    if (known !== null) {
      this.#note(known, piece)
      if (known.isCustom) return [customPiece(known.index, '')]
      return [{ index: known.index, function: { arguments: args } }]
    }
    if (name !== null) return [this.#begin(piece, name)]
    // Some engines send an empty piece before the first.
    if (args === '') return []
    throw malformed()
  }

  #begin(piece: Piece, given: string): JsonObject {
    const { request } = this.#plan
    const name = calledTool(given, request)
    const index = this.#begun.length
    if (index >= callsMax) throw malformed()
    const isTaken = this.#begun.some(({ engineId }) => engineId !== null && engineId === piece.engineId)
    const id = toolCallId(isTaken ? null : piece.engineId, index, this.#plan)
    const isStrict = request.strictTools.has(name)
    const isCustom = request.customTools.has(name)
    const call = { index, engineId: piece.engineId, isStrict, isCustom, args: '', isWhole: false }
    this.#begun.push(call)
    this.#byIndex.set(piece.index, call)
    this.#note(call, piece)
    if (isCustom) return { index, ...customCall(id, name, '') }
    return { index, id, type: 'function', function: { name, arguments: piece.args } }
  }

  #note(call: BegunCall, { args, isWhole }: Piece): void {
    if (args === '') return
    if (call.isWhole || (isWhole && call.args !== '')) throw malformed()
    call.isWhole = isWhole
    if (call.isStrict || call.isCustom) {
      this.#noteKept(args.length)
      call.args += args
    } else call.args = ' '
  }

  /** Returns the call that the piece continues; null for a piece that begins a call. */
  #continuedBy({ index, name, engineId }: Piece): BegunCall | null {
    const known = (isNone(index) ? this.#begun.at(-1) : this.#byIndex.get(index)) ?? null
    if (known === null || name === null) return known
    // Some engines number all calls 0, or do not number them.
    if (engineId === null) return isNone(index) ? null : known
    return known.engineId === null || known.engineId === engineId ? known : null
  }
}

function pieceOf({ index, id, function: called = {} }: JsonObject): Piece {
  if (!isObject(called)) throw malformed()
  const isIndex = typeof index === 'number' && Number.isInteger(index) && index >= 0 && index < callsMax
  if (!isNone(index) && !isIndex) throw malformed()
  return {
    index,
    engineId: typeof id === 'string' && id !== '' ? id : null,
    name: stringOrNull(called.name) || null,
    args: argumentsOf(called.arguments),
    isWhole: isObject(called.arguments),
  }
}

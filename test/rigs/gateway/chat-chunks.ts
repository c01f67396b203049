// Checked chunks of a chat, as the gateway writes them, and any that there may be.

import fc from 'fast-check'

export type Piece =
  | { readonly content: string }
  | { readonly refusal: string }
  | { readonly reasoning_content: string }
  | { readonly call: number; readonly args: string }

/** The chunks of a stream: each call begins with its id and name; the last chunk says why it ends. */
export function chunksOf(pieces: readonly Piece[], finish: string): string[] {
  const begun = new Set<number>()
  const deltas = pieces.map(piece => {
    if (!('call' in piece)) return piece
    const { call: index, args } = piece
    if (begun.has(index)) return { tool_calls: [{ index, function: { arguments: args } }] }
    begun.add(index)
    return {
      tool_calls: [{ index, id: `call_${index}`, type: 'function', function: { name: `f${index}`, arguments: args } }],
    }
  })
  const all = [{ role: 'assistant', content: '' }, ...deltas]
  const chunk = (delta: unknown, reason: string | null) =>
    JSON.stringify({ choices: [{ index: 0, delta, logprobs: null, finish_reason: reason }] })
  return [...all.map(delta => chunk(delta, null)), chunk({}, finish)]
}

const text = fc.string({ unit: 'binary', maxLength: 5 }).map(text => text.toWellFormed())

/**
 * `calls`: `inTurns` with pieces in any order, as some engines send them; `whole` with each call in one piece and an
 * object as arguments.
 */
export function anyPieces(calls: 'inTurns' | 'whole'): fc.Arbitrary<Piece[]> {
  const piece: fc.Arbitrary<Piece> = fc.oneof(
    text.map(content => ({ content })),
    text.map(refusal => ({ refusal })),
    text.map(text => ({ reasoning_content: text })),
    fc.tuple(fc.nat(3), text).map(([call, args]) => ({ call, args })),
  )
  const pieces = fc.array(piece, { maxLength: 20 })
  if (calls === 'inTurns') return pieces
  return pieces.map(all =>
    all.map((item, at) =>
      'call' in item ? { call: at, args: item.args === '' ? '' : JSON.stringify({ a: item.args }) } : item,
    ),
  )
}

/** The pieces' whole text. */
export function joinText(pieces: readonly Piece[], kind: 'content' | 'refusal' | 'reasoning_content'): string {
  return pieces.map(piece => (kind in piece ? String(Reflect.get(piece, kind)) : '')).join('')
}

/** Arguments of the calls, in the order in which they began. */
export function callsOf(pieces: readonly Piece[]): { name: string; args: string }[] {
  const found = new Map<number, string>()
  for (const piece of pieces) if ('call' in piece) found.set(piece.call, (found.get(piece.call) ?? '') + piece.args)
  return [...found].map(([index, args]) => ({ name: `f${index}`, args }))
}

// Cost of tokens in integers. Pure. A price has at most six decimals per million tokens, so one token costs a whole
// number of millionths of a micro-dollar.

import { assert } from '../../base/assert.ts'
import { Fault } from '../../base/fault.ts'
import type { Tokens } from '../types.ts'

/** Prices as configured. */
export type Price = {
  readonly model: string
  readonly prompt_usd_per_million: string
  readonly completion_usd_per_million: string
  /** Absent or empty: the price of other prompt tokens. */
  readonly cached_prompt_usd_per_million?: string
}

/**
 * Returns the cost of one request in nano-dollars: prompt and completion together, rounded up once. A model without a
 * price is free.
 */
export type Cost = (model: string, tokens: Tokens) => bigint

const picoPerNano = 1_000

type PicoUsd = Readonly<Record<'prompt' | 'cached' | 'completion', bigint>>
type ModelPrice = PicoUsd & { readonly numbers: Readonly<Record<keyof PicoUsd, number>> }

/** Throws Fault config.invalid for two prices of one model, or if cached tokens cost more than others. */
export function createCost(prices: readonly Price[]): Cost {
  const byModel = new Map<string, ModelPrice>()
  for (const price of prices) {
    if (byModel.has(price.model)) {
      throw new Fault('config.invalid', `inference.prices names ${price.model} twice`, { param: 'inference.prices' })
    }
    const pico = picoUsdOf(price)
    const numbers = { prompt: Number(pico.prompt), cached: Number(pico.cached), completion: Number(pico.completion) }
    byModel.set(price.model, { ...pico, numbers })
  }
  return (model, tokens) => {
    const price = byModel.get(model)
    if (price === undefined) return 0n
    const cached = Math.min(tokens.cached ?? 0, tokens.prompt)
    const other = tokens.prompt - cached
    // Uses plain numbers if they are exact, because big integers would take ten times as long.
    const { prompt, cached: ofCache, completion } = price.numbers
    const pico = other * prompt + cached * ofCache + tokens.completion * completion + picoPerNano - 1
    if (pico <= Number.MAX_SAFE_INTEGER) return BigInt((pico - (pico % picoPerNano)) / picoPerNano)
    const sum = BigInt(other) * price.prompt + BigInt(cached) * price.cached
    return divideUp(sum + BigInt(tokens.completion) * price.completion, BigInt(picoPerNano))
  }
}

/** Converts a price. Budgets reserve for a prompt without a cache, so cached tokens must not cost more. */
function picoUsdOf(price: Price): PicoUsd {
  const prompt = picoUsdPerToken(price.prompt_usd_per_million)
  const text = price.cached_prompt_usd_per_million ?? ''
  const cached = text === '' ? prompt : picoUsdPerToken(text)
  if (cached > prompt) {
    throw new Fault(
      'config.invalid',
      `inference.prices: cached_prompt_usd_per_million of ${price.model} is above its prompt_usd_per_million`,
      { param: 'inference.prices' },
    )
  }
  return { prompt, cached, completion: picoUsdPerToken(price.completion_usd_per_million) }
}

/** Converts nano-dollars to micro-dollars, rounded up, so that spend is never shown as less than it is. */
export function microUsd(nanoUsd: bigint): bigint {
  return divideUp(nanoUsd, 1_000n)
}

/** Converts the price; micro-dollars per million tokens are pico-dollars per token. */
function picoUsdPerToken(usdPerMillion: string): bigint {
  assert(/^[0-9]+(\.[0-9]{1,6})?$/.test(usdPerMillion), 'a price is a plain decimal with at most six places')
  const [whole = '', fraction = ''] = usdPerMillion.split('.')
  return BigInt(whole) * 1_000_000n + BigInt(fraction.padEnd(6, '0'))
}

function divideUp(amount: bigint, by: bigint): bigint {
  assert(amount >= 0n, 'no amount is negative')
  return (amount + by - 1n) / by
}

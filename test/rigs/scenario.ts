// One request and everything that its answer must and must not be.

import { expect } from 'bun:test'
import type { Answer, Appliance, SendOptions } from '../../scripts/rigs/instances/instances-service.ts'
import { requestIdPattern } from '../../src/contract/http/problem.ts'

export type Scenario = SendOptions & {
  /** Completes the sentence "a client …". */
  readonly goal: string
  readonly method: string
  readonly path: string
  readonly status: number
  /** The whole body but for `request_id`. */
  readonly answer: Record<string, unknown>
  /** Headers besides those every answer has; null if it must not be there. */
  readonly expectHeaders?: Record<string, string | null>
  /** Must not be anywhere in the answer, besides what never may. */
  readonly absent?: readonly string[]
}

/** Never in an answer of ours: stack traces, SQL, source and database paths, other tenants, anything of a key. */
const NEVER = [
  /\bat .*:\d+:\d+/,
  /\.ts\b/,
  /node_modules/,
  /SQLITE|SELECT |INSERT |UPDATE /i,
  /strongroom\.db/,
  /sha256/i,
  /globex/,
  /initech/,
]

export async function play(appliance: Appliance, scenario: Scenario): Promise<Answer> {
  const answer = await appliance.send(scenario.method, scenario.path, scenario)
  const requestId = answer.json.request_id
  expect(String(requestId)).toMatch(new RegExp(requestIdPattern))
  expect(answer.headers.get('x-request-id')).toBe(String(requestId))
  expect<Record<string, unknown>>({ status: answer.status, ...answer.json }).toEqual({
    status: scenario.status,
    request_id: requestId,
    ...scenario.answer,
  })
  expect(answer.headers.get('content-type')).toStartWith('application/json')
  const expected = { 'www-authenticate': scenario.status === 401 ? 'Bearer' : null, ...scenario.expectHeaders }
  for (const [name, value] of Object.entries(expected)) {
    expect(`${name}: ${answer.headers.get(name)}`).toBe(`${name}: ${value}`)
  }
  expectNothingLeaks(appliance, answer, scenario.absent)
  return answer
}

/** Over body and headers. */
export function expectNothingLeaks(
  appliance: Appliance,
  answer: Pick<Answer, 'headers' | 'text'>,
  absent: readonly string[] = [],
) {
  const whole = `${JSON.stringify([...answer.headers])}\n${answer.text}`
  for (const pattern of NEVER) expect(whole).not.toMatch(pattern)
  for (const key of Object.values(appliance.keys)) expect(whole).not.toContain(key.split('_')[2] ?? key)
  for (const text of absent) expect(whole).not.toContain(text)
}

export function failed(code: string, message: string, param?: string): Record<string, unknown> {
  return { correlation_id: null, error: { code, message, ...(param === undefined ? {} : { param }) } }
}

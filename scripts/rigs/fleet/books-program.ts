// One host's books as a process of its own, to be killed. Arguments: its options as JSON. Prints its address. It spends
// what it is asked to, and answers once the row is on the disk: GET /spend?key=…&most=…&tokens=…&holdMs=…. Effects:
// those of the host, a port; ends with its standard input.

import { writeSync } from 'node:fs'
import { Fault } from '../../../src/base/fault.ts'
import { BudgetFault } from '../../../src/inference/metering/budgets.ts'
import { type BooksHostOptions, organizationId, startBooksHost } from './books-host.ts'

type Options = Omit<BooksHostOptions, 'nowMs' | 'log'> & { readonly aheadMs: number }

const { aheadMs, ...options }: Options = JSON.parse(process.argv[2] ?? '')
let ahead = aheadMs
const host = await startBooksHost({
  ...options,
  nowMs: () => Date.now() + ahead,
  runs: true,
  log: line => writeSync(2, `${line}\n`),
})

async function spend(asked: URLSearchParams): Promise<Response> {
  const number = (name: string) => Number(asked.get(name) ?? 0)
  try {
    const release = await host.reserve(asked.get('key') ?? '', number('most'))
    await Bun.sleep(number('holdMs'))
    const id = host.book(asked.get('key') ?? '', number('tokens'))
    release?.()
    host.metering.flush()
    return Response.json({ id })
  } catch (error) {
    const isSoon = error instanceof BudgetFault && error.mayFitSoon
    const status = error instanceof Fault && error.code === 'budget_exceeded' ? 429 : 503
    return Response.json({ isSoon, error: String(error) }, { status })
  }
}

const server = Bun.serve({
  hostname: '127.0.0.1',
  port: 0,
  development: false,
  fetch: request => {
    const { pathname, searchParams } = new URL(request.url)
    if (pathname === '/spend') return spend(searchParams)
    if (pathname === '/ahead') {
      ahead = Number(searchParams.get('ms'))
      return new Response('')
    }
    const month = searchParams.get('month') ?? ''
    const of = (keyPrefix: string) => host.metering.spent({ organizationId, keyPrefix }, month)
    return Response.json({ ...of('k1'), unreported: host.fleet.view().unreportedRows })
  },
})
writeSync(1, `${JSON.stringify({ url: `http://127.0.0.1:${server.port}`, hostId: host.hostId })}\n`)
for await (const _ of process.stdin);
process.exit(0)

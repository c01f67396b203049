// The page's program: reads the form, verifies the gateway, lists the checks; asks a question, shows the answer as it
// comes, and verifies its receipt. Effects: the network, the page.

import {
  type AttestedFetch,
  attestedFetch,
  type Check,
  VerificationError,
  verifyGatewayResponse,
} from '@strongroom/verifier'

const form = found('form', HTMLFormElement)
const verdict = found('#verdict', HTMLHeadingElement)
const answer = found('#answer', HTMLPreElement)
const receipt = found('#receipt', HTMLParagraphElement)
const list = found('#checks', HTMLUListElement)

form.addEventListener('submit', event => {
  event.preventDefault()
  const isQuestion = event.submitter?.getAttribute('name') === 'ask'
  for (const part of [answer, receipt, list]) part.replaceChildren()
  verdict.textContent = 'Verifying …'
  void run(isQuestion).catch(error => {
    if (error instanceof VerificationError) show('FAIL', error.failed)
    else show(`Error: ${error.message}`, [])
  })
})

async function run(isQuestion: boolean): Promise<void> {
  const outside = field('outside')
    .split(/\s+/)
    .filter(name => name !== '')
  const root = field('root')
  const gateway = attestedFetch({
    url: field('url'),
    policy: field('policy'),
    outside,
    ...(root === '' ? {} : { simulatedRoot: root }),
  })
  try {
    const { simulated, checks } = await gateway.verify()
    show(simulated ? 'PASS, SIMULATED: no hardware attests it' : 'PASS', checks)
    if (isQuestion) await ask(gateway, outside)
  } finally {
    gateway.close()
  }
}

async function ask(gateway: AttestedFetch, outside: readonly string[]): Promise<void> {
  const messages = [{ role: 'user', content: field('question') }]
  const body = JSON.stringify({ model: field('model'), stream: true, messages })
  const response = await gateway(`${field('url').replace(/(?:\/v1)?\/?$/, '')}/v1/chat/completions`, {
    method: 'POST',
    headers: {
      authorization: `Bearer ${field('key')}`,
      'content-type': 'application/json',
      'x-strongroom-receipt': '1',
    },
    body,
  })
  if (!response.ok || response.body === null) throw new Error(`status ${response.status}: ${await response.text()}`)
  const pieces: Uint8Array[] = []
  const decoder = new TextDecoder()
  let rest = ''
  for await (const piece of response.body) {
    pieces.push(piece)
    const lines = (rest + decoder.decode(piece, { stream: true })).split('\n')
    rest = lines.pop() ?? ''
    for (const line of lines) answer.append(textOf(line))
  }
  const evidence = gateway.evidence()
  if (evidence === null) throw new Error('the evidence is too old to judge a receipt by')
  const exchange = {
    request: new TextEncoder().encode(body),
    response: new Uint8Array(await new Blob(pieces as Uint8Array<ArrayBuffer>[]).arrayBuffer()),
    receipt: null,
  }
  const { ok, checks } = await verifyGatewayResponse(exchange, evidence.verdict, { outside })
  const failed = checks.filter(check => check.outcome === 'fail').map(check => `${check.name}: ${check.reason}`)
  receipt.textContent = ok ? 'Receipt PASS: the gateway signed this answer to this question' : `Receipt FAIL: ${failed}`
}

/** The text in one line of a stream of events; '' for every other line. */
function textOf(line: string): string {
  if (!line.startsWith('data: {')) return ''
  return JSON.parse(line.slice('data: '.length)).choices?.[0]?.delta?.content ?? ''
}

/** Text only: names in it come from the gateway. */
function show(title: string, checks: readonly Check[]): void {
  verdict.textContent = title
  list.replaceChildren(
    ...checks.map(({ name, outcome, ...check }) => {
      const row = document.createElement('li')
      row.textContent = `${outcome} ${name}${'reason' in check ? `: ${check.reason}` : ''}`
      return row
    }),
  )
}

function field(name: string): string {
  return String(new FormData(form).get(name) ?? '').trim()
}

function found<E extends Element>(selector: string, kind: new () => E): E {
  const element = document.querySelector(selector)
  if (!(element instanceof kind)) throw new Error(`the page has no ${selector}`)
  return element
}

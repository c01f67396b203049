// The page's program: reads the form, verifies the gateway at the page's own address, lists the checks. Effects: the
// network, the page.

import { attestedFetch, type Check, VerificationError } from '@strongroom/verifier'

const form = found('form', HTMLFormElement)
const verdict = found('#verdict', HTMLHeadingElement)
const list = found('#checks', HTMLUListElement)

form.addEventListener('submit', event => {
  event.preventDefault()
  verdict.textContent = 'Verifying …'
  list.replaceChildren()
  void verify(new FormData(form)).catch(error => show(`No verdict: ${error.message}`, []))
})

async function verify(fields: FormData): Promise<void> {
  const [policy, outside, root] = ['policy', 'outside', 'root'].map(name => String(fields.get(name)).trim())
  const gateway = attestedFetch({
    url: location.origin,
    policy: policy ?? '',
    outside: (outside ?? '').split(/\s+/).filter(name => name !== ''),
    ...(root ? { simulatedRoot: root } : {}),
  })
  try {
    const { simulated, checks } = await gateway.verify()
    show(simulated ? 'PASS, SIMULATED: no hardware vouches for it' : 'PASS', checks)
  } catch (error) {
    if (!(error instanceof VerificationError)) throw error
    show('FAIL', error.failed)
  } finally {
    gateway.close()
  }
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

function found<E extends Element>(selector: string, kind: new () => E): E {
  const element = document.querySelector(selector)
  if (!(element instanceof kind)) throw new Error(`the page has no ${selector}`)
  return element
}

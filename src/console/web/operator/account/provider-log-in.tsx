// Signs in at the identity provider, if the configuration has one.

import type { SignInDocument } from '../../../../contract/admin/console.ts'
import { useAction } from '../../core/action.ts'
import { useLoaded } from '../../core/loaded.ts'
import { requestJson } from '../../core/request.ts'
import { goToProvider } from '../../core/session.ts'
import { BusyButton } from '../../parts/dialog.tsx'
import { ProblemNote } from '../../parts/page.tsx'
import { Foreign } from '../../parts/text.tsx'

export function ProviderLogIn() {
  const path = '/api/sign-in'
  const offered = useLoaded(path, options => requestJson<SignInDocument>(path, options))
  const leave = useAction(goToProvider)
  const provider = offered.data?.oidc ?? null
  if (provider === null) return null
  return (
    <section>
      <h2>
        With <Foreign text={provider.name} />
      </h2>
      <p>If it does not answer, a passkey or a link still works.</p>
      <BusyButton
        isBusy={leave.isBusy}
        verb={`Sign in with ${provider.name}`}
        busyWord={`Opening ${provider.name} …`}
        onClick={() => void leave.run()}
      />
      {leave.problem !== null && <ProblemNote problem={leave.problem} />}
    </section>
  )
}

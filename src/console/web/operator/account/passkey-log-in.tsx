// Logs in with a passkey, if the browser supports them.

import { useAction } from '../../core/action.ts'
import { hasPasskeys, logInByPasskey } from '../../core/passkeys.ts'
import { begin } from '../../core/session.ts'
import { BusyButton } from '../../parts/dialog.tsx'
import { ProblemNote } from '../../parts/page.tsx'

export function PasskeyLogIn() {
  const logIn = useAction(async () => begin(await logInByPasskey()))
  if (!hasPasskeys()) return null
  return (
    <section>
      <h2>With a passkey</h2>
      <p>Use a passkey that you created under this console name.</p>
      <BusyButton
        isBusy={logIn.isBusy}
        verb="Sign in with a passkey"
        busyWord="Waiting for your passkey …"
        onClick={() => void logIn.run()}
      />
      {logIn.problem !== null && <ProblemNote problem={logIn.problem} />}
    </section>
  )
}

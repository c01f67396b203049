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
      <p>If you have made one here before, under this name of the console.</p>
      <BusyButton
        isBusy={logIn.isBusy}
        verb="Log in with a passkey"
        busyWord="Waiting for your passkey …"
        onClick={() => void logIn.run()}
      />
      {logIn.problem !== null && <ProblemNote problem={logIn.problem} />}
    </section>
  )
}

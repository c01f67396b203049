// The log-in page: at the identity provider if there is one, with a passkey, or a link created on the host.

import type { RequestProblem } from '../../core/request.ts'
import { ProblemNote } from '../../parts/page.tsx'
import { CommandLine, Link } from '../../parts/text.tsx'
import { ThemeChoice } from '../../parts/theme-choice.tsx'
import { PasskeyLogIn } from './passkey-log-in.tsx'
import { ProviderLogIn } from './provider-log-in.tsx'

export function LogInPage({ problem }: { problem: RequestProblem | null }) {
  return (
    <main id="main" class="alone">
      <div class="log-in">
        <p class="brand">
          <span class="brand-mark" aria-hidden="true" />
          Strongroom
        </p>
        <h1>Sign in</h1>
        {problem !== null && <ProblemNote problem={problem} />}
        <ProviderLogIn />
        <PasskeyLogIn />
        <section>
          <h2>With a link</h2>
          <p>Run this command on the host as an administrator. Its link works once, within one minute.</p>
          <CommandLine command="strongroom console open" />
        </section>
        <p class="muted">
          Do you have a key? <Link href="/tenant">Open your instances and models</Link>.
        </p>
        <ThemeChoice />
      </div>
    </main>
  )
}

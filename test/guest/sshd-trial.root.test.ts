// Goal: before the claim, the image's trial of sshd completes a handshake without a network, and a login fails; once a
// key can log in, there is no trial.

import { expect, test } from 'bun:test'

const program = new URL('../../guest-image/recipes/instance/root/usr/lib/strongroom/sshd-trial', import.meta.url)
  .pathname

/** As init and the agent make it. $1: the program. Its namespace has no interface up, not even loopback. */
const SETUP = `
set -euo pipefail
mount --make-rprivate /
mount -t tmpfs -o mode=0755 tmpfs /run
mkdir -p /run/strongroom /run/sshd
ssh-keygen -q -t ed25519 -N '' -f /run/strongroom/ssh_host_ed25519_key
echo '{}' >/run/strongroom/network.json
printf '%s\\n' 'HostKey /run/strongroom/ssh_host_ed25519_key' 'AllowUsers agent' 'AuthenticationMethods publickey' \
  'AuthorizedKeysFile /run/strongroom/authorized_keys' >/run/sshd_config
mount --bind /run/sshd_config /etc/ssh/sshd_config
`

async function tried(script: string) {
  const argv = ['unshare', '--mount', '--net', 'bash', '-c', `${SETUP}${script}\nexec "$1"`, 'machine', program]
  const child = Bun.spawn(argv, { stdin: 'ignore', stdout: 'pipe', stderr: 'pipe' })
  const [stdout, stderr, code] = await Promise.all([child.stdout.text(), child.stderr.text(), child.exited])
  return { code, stdout, stderr: stderr.replaceAll('\r', '') }
}

const patient = 120_000

test(
  'goal: an unclaimed VM completes a handshake without a network, and the login fails',
  async () => {
    const { code, stdout, stderr } = await tried('')
    expect(stderr).toContain("Permanently added 'localhost' (ED25519)")
    expect(stderr).toContain('agent@localhost: Permission denied (publickey).')
    expect({ code, stdout }).toEqual({ code: 255, stdout: '' })
  },
  patient,
)

test(
  'goal: a claimed VM has no trial',
  async () => {
    const outcome = await tried('cat /run/strongroom/ssh_host_ed25519_key.pub >/run/strongroom/authorized_keys')
    expect(outcome).toEqual({ code: 0, stdout: '', stderr: '' })
  },
  patient,
)

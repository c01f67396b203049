// The packaged agent's way to the inference gateway: its requests to that one provider trust the authority that came with the claim, and no
// other. Nothing else in the VM is told to trust it. Loaded by opencode (a plugin, named in opencode.json); runs in its Bun.

import { readFileSync } from 'node:fs'

const caFile = '/run/strongroom/gateway-ca.pem'

export const StrongroomGateway = async () => ({
  config: async config => {
    const options = config.provider?.strongroom?.options
    if (options === undefined) return
    const ca = readFileSync(caFile, 'utf8')
    options.fetch = (input, init) => fetch(input, { ...init, tls: { ca } })
  },
})

// Goal: new sessions have placeholders and trust the broker; without secrets nothing is set.

import { expect, test } from 'bun:test'
import { sessionText } from '../../../src/guest/secrets/session.plan.ts'

const files = { authorityFile: '/run/strongroom/broker/authority.pem', rootsFile: '/run/strongroom/broker/roots.pem' }

test('goal: the whole text, which sh reads', () => {
  const text = sessionText(['GITHUB_TOKEN', 'B2'], files)
  expect(text).toBe(`export GITHUB_TOKEN=strongroom-placeholder-GITHUB_TOKEN
export B2=strongroom-placeholder-B2
export SSL_CERT_FILE=/run/strongroom/broker/roots.pem
export CURL_CA_BUNDLE=/run/strongroom/broker/roots.pem
export GIT_SSL_CAINFO=/run/strongroom/broker/roots.pem
export CARGO_HTTP_CAINFO=/run/strongroom/broker/roots.pem
export PIP_CERT=/run/strongroom/broker/roots.pem
export REQUESTS_CA_BUNDLE=/run/strongroom/broker/roots.pem
export AWS_CA_BUNDLE=/run/strongroom/broker/roots.pem
export NPM_CONFIG_CAFILE=/run/strongroom/broker/roots.pem
export NODE_EXTRA_CA_CERTS=/run/strongroom/broker/authority.pem
`)
  const { stdout } = Bun.spawnSync(['sh', '-euc', `${text}printenv B2 NODE_EXTRA_CA_CERTS`], {
    env: { PATH: process.env.PATH },
  })
  expect(stdout.toString()).toBe(`strongroom-placeholder-B2\n${files.authorityFile}\n`)
  expect(sessionText([], files)).toBe('')
})

// The environment of new sessions while this VM has secrets, as text for the login shell. Pure.

import { placeholderOf } from '../../contract/vm/orders/secret.ts'

/** Files that the broker writes: the authorities of this VM, alone and behind the system's roots. */
export type TrustFiles = { readonly authorityFile: string; readonly rootsFile: string }

/** Variables that make programs read a file with every root that they trust. */
const rootsVariables = [
  ...['SSL_CERT_FILE', 'CURL_CA_BUNDLE', 'GIT_SSL_CAINFO', 'CARGO_HTTP_CAINFO'],
  ...['PIP_CERT', 'REQUESTS_CA_BUNDLE', 'AWS_CA_BUNDLE', 'NPM_CONFIG_CAFILE'],
] as const

/** Assignments of sh(1). `names`: of the secrets, which are names of variables. Empty without secrets. */
export function sessionText(names: readonly string[], { authorityFile, rootsFile }: TrustFiles): string {
  if (names.length === 0) return ''
  const variables = [
    ...names.map(name => `${name}=${placeholderOf(name)}`),
    ...rootsVariables.map(name => `${name}=${rootsFile}`),
    // Node adds this file to its own roots.
    `NODE_EXTRA_CA_CERTS=${authorityFile}`,
  ]
  return variables.map(variable => `export ${variable}\n`).join('')
}

// Body of the order `publish`. Pure.
//
// Clients reach `{name}.{host name of the instance}` by TLS at one port of the VM, which passes the plain bytes on to a
// port of a program inside. The key is made in the VM; the host gets the certificate for it.

import { Closed, OrNull } from '../../forms.ts'
import { Type } from '../../type.ts'
import { PublishedFacts } from './published-facts.ts'

/** The TCP port of the VM for all its published ports. Privileged, so that no program of the owner's takes it first. */
export const publicTlsPort = 443
/** Published ports of one VM. Share: of the order documents of its owner. */
export const publishedMax = 4

/** Bytes of the VM's egress cap that answers of a port may use, unless the owner orders another part. */
export const publishedEgressBytes = 256 * 1_048_576
export const publishedEgressBytesMax = 2 ** 44

const { name, port } = PublishedFacts.properties
/**
 * `port`: null ends the published port, and its key; left out, nothing changes, and the answer has all published ports.
 * `egressBytes`: left out, it stays as it is.
 */
export const PublishBody = Closed({
  name,
  port: Type.Optional(OrNull(port)),
  egressBytes: Type.Optional(Type.Integer({ minimum: 1, maximum: publishedEgressBytesMax })),
})

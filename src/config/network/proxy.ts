// The proxy for requests of this host to others: the table `network.proxy` of the configuration. Pure.

import { type Static, Type } from '@sinclair/typebox'
import { noProxyAllowed } from '../../linux/net/proxy.plan.ts'
import { PathOrNone, Section } from '../fields.ts'

export const ProxyConfig = Section({
  url: Type.String({
    default: '',
    pattern: '^$|^https?://([a-z0-9.-]{1,253}|\\[[0-9a-f:.]{2,45}\\]):[0-9]{1,5}$',
    allowed: '"" or http://HOST:PORT or https://HOST:PORT, with nothing after it',
    description:
      'Proxy for https requests of the daemon to AMD, the ACME server, witnesses, the identity provider and the webhook of alerts, such as "http://proxy.example.org:3128". It opens a tunnel (CONNECT), in which the certificate of the far side is verified. An https proxy needs a certificate of an authority that this host trusts. "" for none. Variables such as HTTPS_PROXY have no effect on the daemon.',
  }),
  user: Type.String({
    default: '',
    pattern: '^[^:\\x00-\\x1f\\x7f]{0,256}$',
    allowed: '"" or a user of at most 256 characters without ":"',
    description: 'User at the proxy. "" for no log-in. An http proxy gets user and password unencrypted.',
  }),
  password_file: PathOrNone('File with the password of `user`, read again for each request.'),
  no_proxy: Type.Array(Type.String({ minLength: 1, maxLength: 255, allowed: noProxyAllowed }), {
    default: [],
    maxItems: 64,
    description:
      'Hosts that are reached without the proxy: "mirror.example.org" for that name, "*.example.org" for every name below that one, an address, or a network such as "10.0.0.0/8", which matches addresses in URLs only. Loopback addresses and localhost are never reached through the proxy.',
  }),
})
export type ProxyConfig = Static<typeof ProxyConfig>

// Goal: a discovery document with which no sign-in can work is refused with the member that does not fit, in a bounded
// text, before a person is sent to the provider.

import { expect, test } from 'bun:test'
import type { AuthorizationServer } from 'oauth4webapi'
import { usableMetadata } from '../../../src/console/oidc/metadata.ts'

const complete = {
  issuer: 'https://id.example',
  authorization_endpoint: 'https://id.example/authorize',
  token_endpoint: 'https://id.example/token',
  jwks_uri: 'https://id.example/keys',
}

const judge = (change: Readonly<Record<string, unknown>>) => {
  try {
    return usableMetadata({ ...complete, ...change } as AuthorizationServer).id_token_signing_alg_values_supported
  } catch (error) {
    return (error as Error).message
  }
}

test('goal: documents of real kinds fit, with the algorithms that are taken', () => {
  expect(judge({})).toEqual(['RS256'])
  // Entra ID names no code_challenge_methods_supported.
  expect(
    judge({
      response_types_supported: ['code', 'id_token', 'code id_token'],
      token_endpoint_auth_methods_supported: ['client_secret_post', 'private_key_jwt'],
      id_token_signing_alg_values_supported: ['HS256', 'none', 'ES256', 'RS256'],
    }),
  ).toEqual(['ES256', 'RS256'])
  expect(judge({ code_challenge_methods_supported: ['plain', 'S256'] })).toEqual(['RS256'])
})

test('goal: each member that does not fit is named', () => {
  expect(judge({ authorization_endpoint: 'http://id.example' })).toBe('its authorization_endpoint is no https URL')
  expect(judge({ token_endpoint: undefined })).toBe('its token_endpoint is no https URL')
  expect(judge({ jwks_uri: ['https://id.example'] })).toBe('its jwks_uri is no https URL')
  expect(judge({ response_types_supported: ['id_token'] })).toBe(
    'its response_types_supported has "id_token", and this console needs code',
  )
  expect(judge({ code_challenge_methods_supported: ['plain'] })).toBe(
    'its code_challenge_methods_supported has "plain", and this console needs S256',
  )
  expect(judge({ token_endpoint_auth_methods_supported: ['private_key_jwt', 'tls_client_auth'] })).toBe(
    'its token_endpoint_auth_methods_supported has "private_key_jwt, tls_client_auth", and this console needs client_secret_basic or client_secret_post',
  )
  expect(judge({ id_token_signing_alg_values_supported: ['HS256'] })).toBe('it signs ID tokens with "HS256" alone')
})

test('goal: members of odd types and sizes are refused in a bounded text', () => {
  for (const odd of ['RS256', { RS256: true }, ['RS256', 7], null, 7]) {
    expect(judge({ id_token_signing_alg_values_supported: odd })).toBe(
      'its id_token_signing_alg_values_supported is no list of texts',
    )
  }
  const long = judge({ response_types_supported: ['\u001b[2J'.padEnd(100_000, 'x')] })
  expect(String(long).length).toBeLessThan(300)
  expect(long).not.toContain('\u001b')
})

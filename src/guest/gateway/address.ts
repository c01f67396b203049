// Address of the inference gateway's endpoint inside an instance. Pure.

/** Below the ephemeral ports (ip_local_port_range), and no default of developers' programs. */
export const endpointPort = 18_442

/** For clients of Anthropic's API. Plain HTTP, only on loopback; the endpoint encrypts. */
export const endpointOrigin = `http://127.0.0.1:${endpointPort}`

/** For clients of OpenAI's API. */
export const endpointBaseUrl = `${endpointOrigin}/v1`

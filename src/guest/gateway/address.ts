// Where the endpoint of the inference gateway listens inside an instance. Pure.

/** Below the ephemeral ports (ip_local_port_range), and none that programs of developers take by default. */
export const endpointPort = 18_442

/** For clients of Anthropic's API. Plain HTTP, on loopback alone: the way out begins behind it. */
export const endpointOrigin = `http://127.0.0.1:${endpointPort}`

/** For clients of OpenAI's API. */
export const endpointBaseUrl = `${endpointOrigin}/v1`

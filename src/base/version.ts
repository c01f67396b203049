// The version of both executables, from package.json.

export { version } from '../../package.json'

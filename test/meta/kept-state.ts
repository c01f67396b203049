// State that the gateway's VM keeps between two requests, as its source creates it, and the register of it in
// src/KEPT_STATE.md. Pure.
//
// A site is a container that outlives the call that fills it (a class field, a variable of a module, or a
// local variable that a function which outlives the call has captured), or a call that writes a file or opens
// a database. A container that is written down with its contents and never changed is a constant and no site.
// Single values (a string, a number, a buffer) are not found: each keeps one value.

import ts from '@typescript/typescript6'
import type { Tree } from './tree.ts'

export type Site = {
  readonly path: string
  /** `Class.field`, `function.variable` or `variable`. */
  readonly name: string
}

const containers: ReadonlySet<string> = new Set(['Map', 'Set', 'WeakMap', 'WeakSet', 'Array'])
const readonlyContainers: ReadonlySet<string> = new Set(['ReadonlyMap', 'ReadonlySet', 'ReadonlyArray'])

const mutators: ReadonlySet<string> = new Set([
  ...['set', 'add', 'delete', 'clear', 'push', 'pop', 'shift', 'unshift', 'splice', 'fill', 'sort', 'reverse'],
  ...['getOrInsert', 'getOrInsertComputed'],
])

/** Sites of these files. Each use of a container that `src/base` defines is a site, too: its content is the user's. */
export function findKeptState(tree: Tree): readonly Site[] {
  const files = [...tree].map(([path, text]) => ts.createSourceFile(path, text, ts.ScriptTarget.Latest, true))
  const own = files.flatMap(file => sitesOf(file))
  const ofBase = own.filter(({ path }) => path.startsWith('src/base/')).map(({ name }) => name.split('.')[0] ?? '')
  return [...own, ...files.flatMap(file => usesOf(file, new Set(ofBase)))]
}

/** Fields, properties and variables that hold one of the containers with these names. */
function usesOf(file: ts.SourceFile, names: ReadonlySet<string>): Site[] {
  const sites: Site[] = []
  const visit = (node: ts.Node): void => {
    const isMade = ts.isNewExpression(node) || ts.isCallExpression(node)
    if (isMade && ts.isIdentifier(node.expression) && names.has(node.expression.text))
      sites.push({ path: file.fileName, name: holderOf(node) })
    ts.forEachChild(node, visit)
  }
  visit(file)
  return sites
}

function holderOf(made: ts.Node): string {
  for (let at: ts.Node | undefined = made; at !== undefined; at = at.parent) {
    if (ts.isPropertyDeclaration(at)) return [className(at), at.name.getText()].filter(name => name !== null).join('.')
    if (ts.isVariableDeclaration(at) || ts.isPropertyAssignment(at)) {
      const owner = functionAround(at)
      const name = at.name.getText()
      return owner === null ? name : [functionName(owner), name].filter(part => part !== null).join('.')
    }
  }
  return made.getText()
}

function sitesOf(file: ts.SourceFile): Site[] {
  const path = file.fileName
  const sites: Site[] = []
  const add = (...names: readonly (string | null)[]) =>
    sites.push({ path, name: names.filter(name => name !== null).join('.') })
  const visit = (node: ts.Node): void => {
    if (ts.isPropertyDeclaration(node) && isKeptField(node)) add(className(node), node.name.getText(file))
    if (ts.isVariableDeclaration(node) && ts.isIdentifier(node.name)) {
      const owner = functionAround(node)
      const isModule = owner === null
      const list = node.parent
      const isLet = ts.isVariableDeclarationList(list) && (list.flags & ts.NodeFlags.Const) === 0
      if (isModule && (isLet || isKeptConstant(node, file))) add(node.name.text)
      if (!isModule && isCreated(node, isLet) && isCapturedBeyond(node, owner)) add(functionName(owner), node.name.text)
    }
    const callee = ts.isCallExpression(node) || ts.isNewExpression(node) ? calleeOf(node) : ''
    if (writers.has(callee)) add(functionName(node), callee)
    ts.forEachChild(node, visit)
  }
  visit(file)
  return sites
}

/** `name` or `object.name`; empty for a longer expression. */
function calleeOf({ expression }: ts.CallExpression | ts.NewExpression): string {
  if (ts.isIdentifier(expression)) return expression.text
  if (!ts.isPropertyAccessExpression(expression) || !ts.isIdentifier(expression.expression)) return ''
  return `${expression.expression.text}.${expression.name.text}`
}

/** Calls that keep something in a file or a database. */
const writers: ReadonlySet<string> = new Set([
  ...['Database', 'Bun.write', 'writeFileSync', 'writeFileAtomic', 'appendFileSync', 'createWriteStream'],
])

/** A mutable container, or a container in a field that can get another one. */
function isKeptField(field: ts.PropertyDeclaration): boolean {
  const isReadonly = (ts.getModifiers(field) ?? []).some(({ kind }) => kind === ts.SyntaxKind.ReadonlyKeyword)
  const { type, initializer } = field
  if (type !== undefined) return isMutableType(type) || (!isReadonly && isContainerType(type))
  return initializer !== undefined && isContainer(initializer)
}

/** A container that is made empty, or that this file changes. */
function isKeptConstant({ name, type, initializer }: ts.VariableDeclaration, file: ts.SourceFile): boolean {
  if (initializer === undefined || !isContainer(initializer)) return false
  const isMadeToFill = isEmpty(initializer) && !isReadonlyType(type)
  return isMadeToFill || isMutated(name.getText(file), file)
}

function isCreated({ type, initializer }: ts.VariableDeclaration, isLet: boolean): boolean {
  if (initializer === undefined || !isContainer(initializer)) return false
  if (isReadonlyType(type) && !isLet) return false
  return isLet || isEmpty(initializer)
}

function isContainer(given: ts.Expression): boolean {
  const value = unwrapped(given)
  if (ts.isArrayLiteralExpression(value)) return true
  return ts.isNewExpression(value) && ts.isIdentifier(value.expression) && containers.has(value.expression.text)
}

function isEmpty(given: ts.Expression): boolean {
  const value = unwrapped(given)
  if (ts.isArrayLiteralExpression(value)) return value.elements.length === 0
  return ts.isNewExpression(value) && (value.arguments?.length ?? 0) === 0
}

function unwrapped(value: ts.Expression): ts.Expression {
  const isWrapped = ts.isAsExpression(value) || ts.isSatisfiesExpression(value) || ts.isParenthesizedExpression(value)
  return isWrapped ? unwrapped(value.expression) : value
}

function isReadonlyType(type: ts.TypeNode | undefined): boolean {
  return type !== undefined && isContainerType(type) && !isMutableType(type)
}

function isMutableType(type: ts.TypeNode): boolean {
  if (ts.isUnionTypeNode(type)) return type.types.some(isMutableType)
  return ts.isArrayTypeNode(type) || (ts.isTypeReferenceNode(type) && containers.has(type.typeName.getText()))
}

function isContainerType(type: ts.TypeNode): boolean {
  if (ts.isUnionTypeNode(type)) return type.types.some(isContainerType)
  if (ts.isTypeOperatorNode(type)) return isContainerType(type.type)
  const isReadonly = ts.isTypeReferenceNode(type) && readonlyContainers.has(type.typeName.getText())
  return isReadonly || isMutableType(type)
}

function isMutated(name: string, scope: ts.Node): boolean {
  let found = false
  const visit = (node: ts.Node): void => {
    if (ts.isCallExpression(node) && ts.isPropertyAccessExpression(node.expression)) {
      const { expression, name: method } = node.expression
      if (ts.isIdentifier(expression) && expression.text === name && mutators.has(method.text)) found = true
    }
    if (ts.isBinaryExpression(node) && node.operatorToken.kind === ts.SyntaxKind.EqualsToken) {
      const target = ts.isElementAccessExpression(node.left) ? node.left.expression : node.left
      if (ts.isIdentifier(target) && target.text === name) found = true
    }
    if (!found) ts.forEachChild(node, visit)
  }
  visit(scope)
  return found
}

/** A function that is kept by a name or a property, or that is returned, uses the variable. */
function isCapturedBeyond({ name }: ts.VariableDeclaration, owner: ts.Node): boolean {
  const text = name.getText()
  let found = false
  const visit = (node: ts.Node, isInKept: boolean): void => {
    if (isInKept && ts.isIdentifier(node) && node.text === text && !isPropertyName(node)) found = true
    const isKept = isInKept || (node !== owner && isFunction(node) && outlives(node))
    if (!found) ts.forEachChild(node, child => visit(child, isKept))
  }
  visit(owner, false)
  return found
}

function isPropertyName(node: ts.Identifier): boolean {
  return ts.isPropertyAccessExpression(node.parent) && node.parent.name === node
}

/** Every function but a callback that ends with the call that gets it, such as that of `map`. */
function outlives(node: ts.Node): boolean {
  const { parent } = node
  if (!ts.isCallExpression(parent) || !ts.isPropertyAccessExpression(parent.expression)) return true
  return !endingWithCall.has(parent.expression.name.text)
}

const endingWithCall: ReadonlySet<string> = new Set([
  ...['map', 'flatMap', 'filter', 'find', 'findIndex', 'findLast', 'some', 'every', 'forEach', 'reduce', 'sort'],
  ...['toSorted', 'replace', 'replaceAll', 'from', 'groupBy'],
])

function isFunction(node: ts.Node): boolean {
  return ts.isFunctionLike(node) && !ts.isFunctionTypeNode(node)
}

function functionAround(node: ts.Node): ts.Node | null {
  for (let at: ts.Node | undefined = node.parent; at !== undefined; at = at.parent) if (isFunction(at)) return at
  return null
}

function functionName(node: ts.Node): string | null {
  for (let at: ts.Node | undefined = node; at !== undefined; at = at.parent) {
    const name = (at as { name?: ts.Node }).name
    if ((isFunction(at) || ts.isVariableDeclaration(at)) && name !== undefined) return name.getText()
  }
  return null
}

function className({ parent }: ts.PropertyDeclaration): string | null {
  return parent.name?.getText() ?? null
}

// Syntax of TypeScript: names, functions and assignments. Pure.

import ts from '@typescript/typescript6'
import { isFunction } from './bindings.ts'

export const words = (text: string): ReadonlySet<string> => new Set(text.trim().split(/\s+/))

export const isThis = (node: ts.Node): node is ts.ThisExpression => node.kind === ts.SyntaxKind.ThisKeyword

/** With the parentheses and types around it. */
export function outerOf(node: ts.Node): ts.Node {
  const { parent } = node
  return ts.isParenthesizedExpression(parent) || ts.isAsExpression(parent) ? outerOf(parent) : node
}

/** `x` of `this.x`; null for another expression. */
export function thisProperty(node: ts.Node): string | null {
  const isOfThis = ts.isPropertyAccessExpression(node) && node.expression.kind === ts.SyntaxKind.ThisKeyword
  return isOfThis ? node.name.text : null
}

/** The first argument of `Object.assign` and the like. */
export function isAssigned(at: ts.Node): boolean {
  const { parent } = at
  return ts.isCallExpression(parent) && assigning.has(calleeOf(parent)) && parent.arguments[0] === at
}

export const assigning = words(`
  Object.assign Object.defineProperty Object.defineProperties Object.setPrototypeOf Reflect.set Reflect.defineProperty`)

/** Left of an assignment, in a pattern too, in the head of a loop, or beside `++` and `--`. */
export function isSet(node: ts.Node): boolean {
  const { parent } = node
  if (ts.isBinaryExpression(parent)) return parent.left === node && isAssignment(parent)
  if (ts.isForOfStatement(parent) || ts.isForInStatement(parent)) return parent.initializer === node
  if (ts.isPropertyAssignment(parent)) return parent.initializer === node && isSet(parent.parent)
  if (ts.isShorthandPropertyAssignment(parent)) return isSet(parent.parent)
  const isPart =
    ts.isArrayLiteralExpression(parent) || ts.isSpreadElement(parent) || ts.isParenthesizedExpression(parent)
  if (isPart) return isSet(parent)
  const isCounted = ts.isPrefixUnaryExpression(parent) || ts.isPostfixUnaryExpression(parent)
  return isCounted && [ts.SyntaxKind.PlusPlusToken, ts.SyntaxKind.MinusMinusToken].includes(parent.operator)
}

export function isAssignment({ operatorToken: { kind } }: ts.BinaryExpression): boolean {
  return kind >= ts.SyntaxKind.FirstAssignment && kind <= ts.SyntaxKind.LastAssignment
}

export const isMade = (node: ts.Node): node is ts.CallExpression | ts.NewExpression =>
  ts.isCallExpression(node) || ts.isNewExpression(node)

/** `name` or `object.name`; empty for a longer expression. */
export function calleeOf({ expression }: ts.CallExpression | ts.NewExpression): string {
  if (ts.isIdentifier(expression)) return expression.text
  if (!ts.isPropertyAccessExpression(expression) || !ts.isIdentifier(expression.expression)) return ''
  return `${expression.expression.text}.${expression.name.text}`
}

export const isProperty = (node: ts.Identifier) =>
  ts.isPropertyAccessExpression(node.parent) && node.parent.name === node

export function hasModifier(node: ts.Node, kind: ts.SyntaxKind): boolean {
  return ts.canHaveModifiers(node) && (ts.getModifiers(node) ?? []).some(modifier => modifier.kind === kind)
}

export function all<Found extends ts.Node>(root: ts.Node, is: (node: ts.Node) => node is Found): Found[] {
  const found: Found[] = []
  const visit = (node: ts.Node): void => {
    if (is(node)) found.push(node)
    ts.forEachChild(node, visit)
  }
  visit(root)
  return found
}

export function functionAround(node: ts.Node, withoutArrows = false): ts.Node | null {
  for (let at: ts.Node | undefined = node.parent; at !== undefined; at = at.parent)
    if (isFunction(at) && !(withoutArrows && ts.isArrowFunction(at))) return at
  return null
}

/** Name of the function around, or of the variable that holds it; a method's comes after that of its class. */
export function functionName(node: ts.Node): string | null {
  for (let at: ts.Node | undefined = node; at !== undefined; at = at.parent) {
    if (ts.isConstructorDeclaration(at)) return at.parent.name?.text ?? null
    const name = (at as { name?: ts.Node }).name
    if ((!isFunction(at) && !ts.isVariableDeclaration(at)) || name === undefined) continue
    const owner = ts.isClassLike(at.parent) ? at.parent.name : undefined
    return owner === undefined ? name.getText() : `${owner.text}.${name.getText()}`
  }
  return null
}

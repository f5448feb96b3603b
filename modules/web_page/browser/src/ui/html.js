/** Elements of the page, written as templates. */

import { useComputed, useSignal } from "@preact/signals";
import htm from "htm";
import { Component, Fragment, h, render } from "preact";
import { useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";

/** @type {(strings: TemplateStringsArray, ...values: any[]) => any} */
export const html = htm.bind(h);

export {
  Component, Fragment, render, useCallback, useComputed, useEffect, useLayoutEffect, useMemo, useRef, useSignal,
  useState,
};

/**
 * Return class names, without those that do not apply.
 *
 * @param {...(string | false | null | undefined)} names
 */
export function classes(...names) {
  return names.filter(Boolean).join(" ");
}

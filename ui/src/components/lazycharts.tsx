import { type ComponentType, lazy, Suspense } from 'react';

/** Charts come in a file of their own; until it is there the room for them is kept. */
const after = <P extends object>(load: () => Promise<ComponentType<P>>, height: string) => {
  const Loaded = lazy(() => load().then((component) => ({ default: component })));
  return (props: P) => <Suspense fallback={<div style={{ minHeight: height }} />}><Loaded {...props} /></Suspense>;
};
const charts = () => import('./charts');

export const Donut = after(() => charts().then((c) => c.Donut), '12rem');
export const Bars = after(() => charts().then((c) => c.Bars), '12rem');
export const RateLines = after(() => charts().then((c) => c.RateLines), '12rem');

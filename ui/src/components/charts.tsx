// Charts are a file of their own, which browsers fetch when a page has one.
import { Chart, ChartAxis, ChartBar, ChartDonut, ChartGroup, ChartLine, ChartStack } from '@patternfly/react-charts/victory';
import { type Line, type Part, type Rate, type Sample, seriesOf, sizeTicks, spaceParts, topOf } from '../charts';
import { bytes, local } from '../format';
import { explained } from '../health';

/** The colours of the legend in styles.css, which stand for the same in tables. */
const colours = ['var(--ak-c1)', 'var(--ak-c2)', 'var(--ak-c3)'];

/** Donut shows parts of a whole, with a number in its middle. */
export function Donut({ title, middle, below, parts, name }: { title: string; middle: string; below: string; parts: Part[]; name: string }) {
  const said = (p: Part) => `${p.name}: ${bytes(p.value)}`;
  return (
    <div className="ak-chart" style={{ maxWidth: '24rem' }}>
      <ChartDonut name={name} ariaTitle={title} ariaDesc={parts.map(said).join(', ')} data={parts.map((p) => ({ x: p.name, y: p.value }))} colorScale={colours}
        labels={({ datum }: { datum: { x: string; y: number } }) => said({ name: datum.x, value: datum.y })} title={middle} subTitle={below}
        legendData={parts.map((p) => ({ name: said(p) }))} legendOrientation="vertical" legendPosition="right" constrainToVisibleArea
        width={380} height={180} padding={{ left: 10, right: 200, top: 10, bottom: 10 }} />
    </div>
  );
}

/** Bars show whose space is used on each node. */
export function Bars({ lines }: { lines: Line[] }) {
  const parts = lines.map(spaceParts);
  const height = 60 + 26 * lines.length;
  return (
    <div className="ak-chart" style={{ maxWidth: '56rem' }}>
      <Chart name="nodes" ariaTitle="Storage of the nodes" ariaDesc={lines.map((l) => `${l.name}: ${explained(l)}`).join('; ')} width={900} height={height}
        padding={{ left: 150, right: 30, top: 5, bottom: 40 }} domainPadding={{ x: 14 }} horizontal>
        <ChartAxis tickValues={lines.map((l) => l.name)} tickFormat={(n: string) => (n.length > 20 ? `${n.slice(0, 19)}…` : n)} invertAxis />
        <ChartAxis dependentAxis showGrid tickFormat={(n: number) => bytes(n)} tickValues={sizeTicks(Math.max(...lines.map((l) => l.maximum)))} />
        <ChartStack colorScale={colours}>
          {['By volumes', 'By others', 'Free'].map((name, i) => (
            <ChartBar key={name} name={name} barWidth={12} data={lines.map((l, n) => ({ name, x: l.name, y: parts[n]?.[i]?.value ?? 0 }))} />
          ))}
        </ChartStack>
      </Chart>
    </div>
  );
}

/** RateLines show reads and writes of the last minutes. */
export function RateLines({ of: r, samples, from, to }: { of: Rate; samples: Sample[]; from: number; to: number }) {
  const last = samples.at(-1)?.rates;
  const top = topOf(samples, r);
  const desc = last ? `reads ${r.said(last[r.read])}, writes ${r.said(last[r.write])}` : 'the engine does not answer';
  return (
    <div className="ak-chart" style={{ maxWidth: '30rem' }}>
      <Chart name={r.title} ariaTitle={r.title} ariaDesc={desc} width={480} height={190} padding={{ left: 100, right: 25, top: 10, bottom: 30 }}
        domain={{ x: [from, to], y: [0, top] }} colorScale={colours}>
        <ChartAxis tickCount={3} tickFormat={(at: number) => local(new Date(at)).slice(11)} />
        <ChartAxis dependentAxis showGrid tickValues={[0, top / 2, top]} tickFormat={(n: number) => r.said(n)} />
        <ChartGroup colorScale={colours}>
          {[r.read, r.write].map((figure) => <ChartLine key={figure} name={figure} data={seriesOf(samples, figure)} />)}
        </ChartGroup>
      </Chart>
    </div>
  );
}

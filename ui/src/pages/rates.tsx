import { useQuery } from '@tanstack/react-query';
import { useEffect, useState } from 'react';
import { call } from '../api/client';
import type { Volume, VolumeRates } from '../api/wire';
import { Quiet, Section } from '../components/basics';
import { RateLines } from '../components/lazycharts';
import { askEvery, kept, rates, type Sample, withSample } from '../charts';

/** useSamples asks the engine of a volume again and again while the page is in sight, and keeps what it said. */
function useSamples(v: Volume): Sample[] {
  const [samples, setSamples] = useState<Sample[]>([]);
  const { data, dataUpdatedAt } = useQuery({ queryKey: ['rates', v.id], queryFn: () => call<VolumeRates>('GET', `volumerates/${encodeURIComponent(v.name)}`),
    enabled: v.state === 'attached', refetchInterval: askEvery, staleTime: 0, gcTime: 0, structuralSharing: false });
  useEffect(() => {
    if (data) setSamples((all) => withSample(all, { at: dataUpdatedAt, rates: data.known ? data : undefined }));
  }, [data, dataUpdatedAt]);
  return samples;
}

/** Rates are charts of what the users of an attached volume do, since the page was opened. */
export function Rates({ of: v }: { of: Volume }) {
  const samples = useSamples(v);
  const last = samples.at(-1);
  if (v.state !== 'attached' || !last) return null;
  return (
    <Section title="Activity">
      <p className="ak-quiet">
        <span className="ak-key ak-c1" />Reads <span className="ak-key ak-c2" />Writes, as the engine counts each second; since this page was opened, {kept / 60_000} minutes at most.
        {!last.rates && ' The engine does not answer now.'}
      </p>
      <div className="ak-charts">
        {rates.map((r) => (
          <div key={r.title}>
            <h3>{r.title}{last.rates && <Quiet>: {r.said(last.rates[r.read])} read, {r.said(last.rates[r.write])} written</Quiet>}</h3>
            <RateLines of={r} samples={samples} from={last.at - kept} to={last.at} />
          </div>
        ))}
      </div>
    </Section>
  );
}

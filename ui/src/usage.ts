/** Claimed is who used a volume when it was backed up, as the labels of the backup say. */
export interface Claimed {
  namespace: string;
  claim: string;
  pods: string;
  /** others are the labels that people have given. */
  others: string;
  /** text is what a filter looks into. */
  text: string;
}

interface Status {
  namespace?: string;
  pvcName?: string;
  pvName?: string;
  workloadsStatus?: { podName?: string; workloadName?: string }[] | null;
}

const own = ['KubernetesStatus', 'VolumeRecurringJobInfo'];

/** claimedOf reads the labels of a backup, or of a volume that has some. A record that cannot be read says nothing. */
export function claimedOf(labels: Record<string, string> | null | undefined): Claimed {
  let status: Status | null = {};
  try {
    status = JSON.parse(labels?.KubernetesStatus || '{}') as Status | null;
  } catch {
    status = {};
  }
  const { namespace = '', pvcName, pvName = '', workloadsStatus } = status ?? {};
  const claim = pvcName ? `${namespace}/${pvcName}` : '';
  const used = Array.isArray(workloadsStatus) ? workloadsStatus : [];
  const pods = used.map((w) => w.podName ?? '').filter(Boolean).join(', ');
  const others = Object.entries(labels ?? {}).filter(([key]) => !own.includes(key)).map(([key, value]) => `${key}=${value}`).join(', ');
  return { namespace, claim, pods, others, text: [claim, pvName, pods, ...used.map((w) => w.workloadName ?? ''), others].join(' ') };
}

package k8stest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ankole.storage/test/bed/cluster"
	"ankole.storage/test/bed/node"
)

// database is PostgreSQL with checksums of its pages, and beside it a client that changes accounts
// again and again. The client notes each change that was acknowledged; it starts anew when it loses
// the server.
const database = `apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db, namespace: default}
spec:
  serviceName: db
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec:
      nodeSelector: {kubernetes.io/hostname: node-1}
      securityContext: {runAsUser: 999, runAsGroup: 999, fsGroup: 999, fsGroupChangePolicy: OnRootMismatch}
      terminationGracePeriodSeconds: 20
      containers:
      - name: work
        image: ankole/postgres:dev
        imagePullPolicy: Never
        command:
        - sh
        - -euc
        - |
          [ -d /data/pg ] || initdb -D /data/pg -U postgres -A trust --data-checksums >/dev/null
          while true; do
            postgres -D /data/pg -k /tmp -c listen_addresses= -c shared_buffers=16MB || true
            while [ -e /tmp/stopped ]; do sleep 1; done
            sleep 1
          done
        volumeMounts: [{name: data, mountPath: /data}, {name: tmp, mountPath: /tmp}]
      - name: client
        image: ankole/postgres:dev
        imagePullPolicy: Never
        command:
        - sh
        - -uc
        - |
          while made=$(psql -h /tmp -U postgres -tAc "select to_regclass('pgbench_accounts') is not null"); [ "$made" != t ]; do
            # a database that does not answer yet is not one without tables: -i begins with dropping them
            [ "$made" != f ] || pgbench -h /tmp -U postgres -i -s 2 -q
            sleep 1
          done
          while true; do
            pgbench -h /tmp -U postgres -n -c 2 -T 100000 --log --log-prefix=/tmp/acknowledged; sleep 1
          done
        volumeMounts: [{name: tmp, mountPath: /tmp}]
      volumes: [{name: tmp, emptyDir: {}}]
  volumeClaimTemplates:
  - metadata: {name: data}
    spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 512Mi}}}
`

// workloadDatabase: a database goes on while a replica, the engine of its volume and the engine's
// instance manager are killed, while that is replaced in order, and while the engine is upgraded.
// When the device ends, since instance manager and manager of the node are killed at once, its Pod
// is started anew and has every change that was acknowledged. By its own tools it is whole each
// time.
func workloadDatabase(b *bed) {
	ctx := context.Background()
	b.apply(database)
	pod := b.podOf("db", "")
	volume := b.volumeOf("data-db-0")
	b.changes(pod.Name, 200)
	for _, f := range []struct {
		what string
		do   func()
	}{
		{"a replica is killed", func() {
			b.killPod(b.managerOf("node-2").Name)
			b.degraded(volume)
		}},
		{"the engine is killed", func() { b.killEngine(volume) }},
		{"the engine is upgraded", func() { b.upgrade(volume) }},
		{"the engine's instance manager is killed", func() { b.killPod(b.managerOf("node-1").Name) }},
		{"the engine's instance manager is replaced", func() {
			b.managersRun()
			b.kubectlOK("-n", namespace, "delete", "pod", b.managerOf("node-1").Name)
		}},
	} {
		began := time.Now()
		f.do()
		b.usable(volume, "node-1", 3)
		b.changes(pod.Name, 200)
		b.took(f.what+", until the database has gone on for 200 changes", began)
	}
	now, err := b.ks.CoreV1().Pods("default").Get(ctx, pod.Name, metav1.GetOptions{})
	if err != nil || now.UID != pod.UID {
		b.t.Errorf("the Pod is another one: %v", err)
	}
	for _, c := range now.Status.ContainerStatuses {
		if c.RestartCount != 0 {
			b.t.Errorf("container %s was started again", c.Name)
		}
	}
	out := b.kubectlOK("logs", pod.Name, "-c", "work")
	if strings.Count(out, "starting PostgreSQL") != 1 {
		b.t.Errorf("the database was not started once:\n%s", out)
	}
	for _, bad := range []string{"PANIC", "could not ", "reinitializing"} {
		if strings.Contains(out, bad) {
			b.t.Errorf("the database says %q:\n%s", bad, out)
		}
	}
	b.whole(pod.Name)

	acknowledged := b.acknowledged(pod.Name)
	b.managersRun()
	began := time.Now()
	b.killHolders("node-1")
	b.await("another Pod of the database runs", func(context.Context) error {
		if pod = b.podOf("db", ""); pod.UID == now.UID {
			return errors.New("it is the one before")
		}
		return nil
	})
	b.changes(pod.Name, 200)
	b.took("the device is lost with both its holders, until the database has made 200 changes in a new Pod", began)
	if out, err := b.query(pod.Name, "select count(*) from pgbench_history"); err != nil {
		b.t.Error(err)
	} else if n, err := strconv.Atoi(out); err != nil || n < acknowledged+200 {
		b.t.Errorf("%d changes were acknowledged before the kill and 200 made after it, the database has %q", acknowledged, out)
	}
	b.managersRun()
	b.usable(volume, "node-1", 3)
	b.whole(pod.Name)

	b.kubectlOK("delete", "statefulset", "db")
	b.unclaim("data-db-0")
}

// query asks the database.
func (b *bed) query(pod, sql string) (string, error) {
	out, err := b.kubectl("exec", pod, "-c", "work", "--", "psql", "-h", "/tmp", "-U", "postgres", "-tAc", sql)
	return strings.TrimSpace(out), err
}

// changes waits until so many more changes were made.
func (b *bed) changes(pod string, more int) {
	b.t.Helper()
	first := -1
	b.await("the database makes changes", func(context.Context) error {
		out, err := b.query(pod, "select count(*) from pgbench_history")
		n, notNumber := strconv.Atoi(out)
		switch {
		case err != nil || notNumber != nil:
			return fmt.Errorf("%s (%v)", out, err)
		case first < 0:
			first = n
		}
		if n < first+more {
			return fmt.Errorf("%d changes more", n-first)
		}
		return nil
	})
}

// whole lets the database's own tools judge it: what was acknowledged is there, accounts and
// history agree, indexes and tables are sound, and, with the database stopped for that, so is the
// checksum of every page.
func (b *bed) whole(pod string) {
	b.t.Helper()
	acknowledged := b.acknowledged(pod)
	out, err := b.query(pod, `begin isolation level repeatable read; select count(*), sum(delta) =
		(select sum(abalance) from pgbench_accounts), sum(delta) = (select sum(bbalance) from pgbench_branches),
		sum(delta) = (select sum(tbalance) from pgbench_tellers) from pgbench_history`)
	lines := strings.Split(out, "\n")
	var n int
	if _, scan := fmt.Sscanf(lines[len(lines)-1], "%d|t|t|t", &n); err != nil || scan != nil || n < acknowledged {
		b.t.Errorf("%d changes were acknowledged, the database says %q (%v)", acknowledged, out, err)
	}
	b.execIn(pod, "work", "pg_amcheck -h /tmp -U postgres --install-missing --heapallindexed postgres")
	b.execIn(pod, "work", `touch /tmp/stopped
		pg_ctl -D /data/pg stop -m fast >/dev/null
		pg_checksums --check -D /data/pg
		rm /tmp/stopped`)
	b.changes(pod, 1)
}

// acknowledged is how many changes the client of a Pod has seen acknowledged.
func (b *bed) acknowledged(pod string) int {
	b.t.Helper()
	n, err := strconv.Atoi(b.execIn(pod, "client", "cat /tmp/acknowledged.* | wc -l"))
	if err != nil {
		b.t.Fatal(err)
	}
	return n
}

// killEngine kills the process of a volume's engine.
func (b *bed) killEngine(volume string) {
	b.t.Helper()
	b.killProcess("--engine-instance-name\x00" + volume + "-e-")
}

// tag gives an image a further name, on all nodes.
func (b *bed) tag(image, name string) {
	b.t.Helper()
	for k := 1; k <= b.Nodes; k++ {
		cmd, err := cluster.Inside(context.Background(), b.Plan, k, "ctr", "--address", node.ContainerdSocket, "-n", "k8s.io",
			"images", "tag", image, name)
		if err != nil {
			b.t.Fatal(err)
		}
		if out, err := cmd.CombinedOutput(); err != nil {
			b.t.Fatalf("%v: %s", err, out)
		}
	}
}

// upgrade gives a volume the engine of another image, which is the same under another name.
func (b *bed) upgrade(volume string) {
	b.t.Helper()
	ctx := context.Background()
	const image = "docker.io/ankole/engine:next"
	b.tag("docker.io/ankole/engine:dev", image)
	defer b.set("allow-live-engine-upgrade-on-same-image-commit", "true")()
	if _, err := b.rest.CreateEngineImage(ctx, image); err != nil {
		b.t.Fatal(err)
	}
	b.await("the volume has the other engine", func(ctx context.Context) error {
		v, err := b.rest.Volume(ctx, volume)
		if err != nil {
			return err
		}
		if v.Image != image {
			_, err = b.rest.UpgradeEngine(ctx, volume, image)
			return errors.Join(err, errors.New("not asked for yet"))
		}
		if v.CurrentImage != image {
			return fmt.Errorf("it has %s", v.CurrentImage)
		}
		return nil
	})
}

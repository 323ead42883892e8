package cluster

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
)

// domain of the names of Services.
const domain = "cluster.local"

// corefile is the server's configuration: the address that it listens at, the domain, a kubeconfig.
const corefile = `.:53 {
	bind %s
	errors
	kubernetes %s in-addr.arpa {
		kubeconfig %s
	}
	cache 5
}
`

// startDNS starts the server that answers names of Services, on the machine's address in the bed's
// network: Pods are told to ask there. It watches the API server, as one in a Pod would.
func (b *Bed) startDNS() error {
	if b.cfg.DNS == "" {
		return nil
	}
	fail := func(err error) error { return fmt.Errorf("server of names: %w", err) }
	conf := b.cfg.Path("Corefile")
	text := fmt.Sprintf(corefile, b.cfg.Host(), domain, b.cfg.Path("kubeconfig"))
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		return fail(err)
	}
	log, err := os.OpenFile(b.cfg.Path("logs", "dns.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fail(err)
	}
	defer func() { _ = log.Close() }()
	cmd := exec.Command(b.cfg.DNS, "-conf", conf)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setsid: true}
	if err := b.parent.start(cmd); err != nil {
		return fail(err)
	}
	done := make(chan struct{})
	b.stopDNS = func() {
		_ = cmd.Process.Kill()
		<-done
	}
	go func() {
		defer close(done)
		err := cmd.Wait()
		select {
		case b.ended <- fmt.Errorf("the server of names has ended: %v; see %s", err, log.Name()):
		default: // something has ended before, or the bed ends
		}
	}()
	return nil
}

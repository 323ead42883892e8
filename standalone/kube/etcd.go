package kube

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

const (
	// etcdStartTimeout covers replaying a log after an unclean stop on a slow disk.
	etcdStartTimeout = 2 * time.Minute
	// compactionMinutes of history are kept; the API server asks for compaction too.
	compactionRetention = "10m"
	// quotaBytes is etcd's own advised maximum; a development cluster stays far below.
	quotaBytes = 8 << 30
)

type etcdServer struct{ e *embed.Etcd }

func (c *ControlPlane) startEtcd(ctx context.Context, creds *credentials) error {
	cfg, err := etcdConfig(c.cfg, creds)
	if err != nil {
		return err
	}
	e, err := embed.StartEtcd(cfg)
	if err != nil {
		return fmt.Errorf("etcd (data in %s): %w", c.cfg.DataDir, err)
	}
	c.etcd = &etcdServer{e}
	select {
	case <-e.Server.ReadyNotify():
	case err := <-e.Err():
		return fmt.Errorf("etcd (data in %s): %w", c.cfg.DataDir, err)
	case <-time.After(etcdStartTimeout):
		return fmt.Errorf("etcd not ready within %s (see %s)", etcdStartTimeout, filepath.Join(c.cfg.LogDir, "etcd.log"))
	case <-ctx.Done():
		return ctx.Err()
	}
	c.cfg.Progress("etcd")
	return nil
}

func etcdConfig(cfg Config, creds *credentials) (*embed.Config, error) {
	if err := os.MkdirAll(cfg.DataDir, 0o700); err != nil {
		return nil, fmt.Errorf("etcd: %w", err)
	}
	client := url.URL{Scheme: "https", Host: hostPort(cfg.Host, cfg.EtcdPort)}
	peer := url.URL{Scheme: "https", Host: hostPort(cfg.Host, cfg.EtcdPeerPort)}
	tls := transport.TLSInfo{
		CertFile:       creds.etcd.CertFile,
		KeyFile:        creds.etcd.KeyFile,
		TrustedCAFile:  cfg.PKI.CAFile(),
		ClientCertAuth: true,
	}
	e := embed.NewConfig()
	e.Name = "standalone"
	e.Dir = cfg.DataDir
	e.ListenClientUrls, e.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
	e.ListenPeerUrls, e.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
	e.InitialCluster = e.InitialClusterFromName(e.Name)
	e.ClientTLSInfo, e.PeerTLSInfo = tls, tls
	e.AutoCompactionMode = embed.CompactorModePeriodic
	e.AutoCompactionRetention = compactionRetention
	e.QuotaBackendBytes = quotaBytes
	e.UnsafeNoFsync = cfg.UnsafeNoFsync
	e.ZapLoggerBuilder = embed.NewZapLoggerBuilder(etcdLogger(cfg.LogDir))
	return e, nil
}

func etcdLogger(dir string) *zap.Logger {
	enc := zap.NewProductionEncoderConfig()
	enc.EncodeTime = zapcore.ISO8601TimeEncoder
	sink := zapcore.AddSync(RotatedLog(filepath.Join(dir, "etcd.log")))
	return zap.New(zapcore.NewCore(zapcore.NewConsoleEncoder(enc), sink, zap.InfoLevel))
}

// stop closes etcd; a closed etcd has its log synced.
func (s *etcdServer) stop(timeout time.Duration) {
	done := make(chan struct{})
	go func() { s.e.Close(); close(done) }()
	select {
	case <-done:
	case <-time.After(timeout):
	}
}

var errNotReady = errors.New("not ready")

package manager

import (
	"context"
	"strings"

	"ankole.storage/controlplane/keys/peerkeys"
	"ankole.storage/controlplane/node/instancemanager"
	"ankole.storage/controlplane/object/naming"
)

// plaintext says what new instance managers do while there is no certificate. They answer nobody,
// unless managers run that look for none, which then have to be answered in plaintext.
func (p *control) plaintext(ctx context.Context) (instancemanager.Plaintext, error) {
	// What this process holds says nothing: its Secret may have been deleted since.
	_, cert, _, err := peerkeys.Read(p.live, p.cfg.Namespace, naming.SecretGRPCTLS)(ctx)
	switch {
	case err != nil || len(cert) > 0:
		return instancemanager.Plaintext{}, err
	case !p.cfg.MutualTLS:
		return instancemanager.Plaintext{For: "managers without --" + peerkeys.FlagMutualTLS}, nil
	}
	images, err := peerkeys.Without(ctx, p.live, p.cfg.Namespace)
	if err != nil || len(images) > 0 {
		return instancemanager.Plaintext{For: strings.Join(images, ",")}, err
	}
	select {
	case p.certificateWanted <- struct{}{}:
	default: // it is told already
	}
	return instancemanager.Plaintext{Wait: true}, nil
}

package client

import (
	"context"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/api"
)

// UserData counts what the server holds for a user.
func (c *Client) UserData(ctx context.Context, user string) (*perdure.UserData, error) {
	return Do(ctx, c, api.UsersData, api.OneUser{User: user})
}

// EraseUser erases everything of a user, including the tokens that the server has for
// them: see [perdure.Runtime.EraseUser]. By is the token's subject.
func (c *Client) EraseUser(ctx context.Context, user string, o perdure.EraseUserOptions) (*perdure.Receipt, error) {
	return Do(ctx, c, api.UsersErase, api.EraseUser{User: user, Reason: o.Reason})
}

// UserReceipt returns the receipt of the erases of a user.
func (c *Client) UserReceipt(ctx context.Context, user string) (*perdure.Receipt, error) {
	return Do(ctx, c, api.UsersReceipt, api.OneUser{User: user})
}

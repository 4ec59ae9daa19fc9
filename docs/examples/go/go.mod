module linedesk-example

go 1.19
